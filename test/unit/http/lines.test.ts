/**
 * No text of a model, a client or a store ends a line of an answer. Some readers split at more than `\n`: httpx, and so Ollama's
 * Python client and LiteLLM, as Python's `splitlines` does.
 */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Stream } from "effect"
import { HttpServer } from "effect/http"
import type { Frame } from "../../../src/domain/Frame.ts"
import { extraSurfaces } from "../../../src/domain/Surface.ts"
import { type Route, routes } from "../../../src/http/routes.ts"
import { layerInMemory, memoryKey } from "../../support/inMemory.ts"
import { modelNamed } from "../../support/permits.ts"
import { ask } from "../../support/posting.ts"
import { sourcesIn, usesOf } from "../../support/sources.ts"
import { testWith } from "../../support/testWith.ts"
import { layerMemory as layerBackend } from "../../support/twins/Backend.ts"
import { layerMemory as layerDiscovery } from "../../support/twins/Discovery.ts"
import { decoding } from "./decoding.ts"

/** The line ends of Python's `splitlines`; here none is the start of another. */
const ends = "\n\r\u000b\u000c\u001c\u001d\u001e\u0085\u2028\u2029"
const odd = `a${[...ends].join("b")}c`

/** As Python's `splitlines`, without the empty lines between events. */
const splitLines = (text: string): ReadonlyArray<string> =>
  text.split(new RegExp(`[${ends}]`)).filter((line) => line !== "")

/** The texts of a value, wherever they are. */
const textsIn = (value: unknown): ReadonlyArray<string> =>
  typeof value === "string"
    ? [value]
    : typeof value === "object" && value !== null
      ? Object.entries(value).flatMap(([name, inner]) => [name, ...textsIn(inner)])
      : []

/** All texts of an answer of which every line is one of a client: a comment, an event, its data, or JSON. */
const textsOf = (answer: string): ReadonlyArray<string> =>
  splitLines(answer).flatMap((line) => {
    if (line === "data: [DONE]" || /^(?:event: [a-z._]+|: waiting)$/.test(line)) return []
    return textsIn(JSON.parse(line.startsWith("data: ") ? line.slice("data: ".length) : line))
  })

/** Everything in which a model can write. */
const begun: ReadonlyArray<Frame> = [
  { createdAt: odd, text: odd, done: false },
  { createdAt: odd, text: odd, done: false },
  { createdAt: odd, text: "", thinking: odd, done: false },
  { createdAt: odd, text: odd, thinking: odd, done: false },
  {
    createdAt: odd,
    text: odd,
    logprobs: [{ token: odd, logprob: -1, top_logprobs: [{ token: odd, logprob: -1 }] }],
    done: false
  },
  { createdAt: odd, text: "", toolCalls: [{ id: odd, name: odd, arguments: { [odd]: odd } }], done: false }
]
const final: Frame = {
  createdAt: odd,
  text: "",
  done: true,
  doneReason: odd,
  promptEvalCount: 1,
  evalCount: 1
}

const model = {
  ...modelNamed("m:latest"),
  modifiedAt: odd,
  details: { [odd]: odd },
  capabilities: ["completion", "tools", "thinking", "insert", "embedding"]
}
const hello = [{ role: "user", content: odd }]
/** Fits every route with a body: fields that a route does not know are dropped. */
const bodyOf = (path: string, name: string) => ({
  model: name,
  messages: hello,
  ...(path === "/v1/responses" ? {} : { prompt: odd }),
  input: odd,
  echo: true,
  instructions: odd,
  metadata: { [odd]: odd },
  max_tokens: 16
})
/** A tool with more values than any may have, as each dialect writes it. The refusal names it. */
const parameters = { enum: Array.from({ length: 5000 }, () => 0) }
const tool = {
  name: odd,
  function: { name: odd, parameters },
  parameters,
  input_schema: parameters
}

for (const { path, ...route } of routes) {
  if (route.handler !== "generate") continue
  const { dialect } = route
  it(`when ${path} writes texts with ends of lines, then each line is whole, and the client reads the texts`, () => {
    const request = decoding(dialect).accepted(bodyOf(path, odd))
    const encoder = () => dialect.encoder(request, { requestId: "r", seal: (ids) => ids })
    const [all, one] = [encoder(), encoder()]
    const written = [all.waiting?.() ?? "", all.frames([...begun, final])].join("")
    const alone = [...begun, final].map((frame) => one.frames([frame])).join("")
    const failure = encoder().failure({ status: 502, type: odd, message: odd }, odd)
    const object = encoder().object({ ...begun[4], ...begun[5], ...final, text: odd, thinking: odd })
    for (const text of [written, alone, failure, object]) assert.include(textsOf(text), odd)
  })
}

testWith(it.live)(
  "when a gateway answers with texts that have ends of lines, then each answer, list and refusal is whole lines",
  function* () {
    const key = memoryKey({})
    const gateway = layerInMemory({
      keys: [key],
      discovery: layerDiscovery([model]),
      backend: layerBackend({
        models: Effect.succeed([model]),
        reply: () => Effect.succeed(Stream.fromIterable([...begun, final])),
        embed: () => Effect.succeed({ vectors: ["[1]"], promptTokens: 1 }),
        show: () => Effect.succeed({ [odd]: odd })
      }),
      server: { extraSurfaces: new Set(extraSurfaces), playground: true }
    })
    const { address } = Context.get(yield* Layer.build(gateway), HttpServer.HttpServer)
    const answerTo = ({ method, path }: Route, sent: unknown) =>
      ask(new URL(path.replace("{id}", "m"), HttpServer.formatAddress(address)), {
        secret: key.secret,
        body: method === "POST" ? sent : undefined
      })
    const refused: Array<string> = []
    for (const route of routes) {
      if (route.handler === "operations") continue
      for (const stream of [true, false]) {
        const { status, text } = yield* answerTo(route, { ...bodyOf(route.path, "m"), stream })
        assert.strictEqual(status, 200, `${route.path} ${text}`)
        const said = textsOf(text)
        const isOdd = route.handler === "generate" || ["/api/show", "/api/tags"].includes(route.path)
        assert.strictEqual(said.includes(odd), isOdd, route.path)
      }
      const type = route.path.startsWith("/v1/messages") ? "custom" : "function"
      const tools = [{ ...tool, type }]
      const { status, text } = yield* answerTo(route, { ...bodyOf(route.path, "m"), tools })
      if (status === 400 && textsOf(text).some((said) => said.includes(odd))) refused.push(route.path)
    }
    assert.sameMembers(refused, [
      "/api/chat",
      "/v1/chat/completions",
      "/v1/responses",
      "/v1/messages",
      "/v1/messages/count_tokens"
    ])
  }
)

it("when a file of the edge writes JSON, then it is by jsonText, which leaves no end of a line", () => {
  const edge = sourcesIn("src/http")
  assert.deepStrictEqual(usesOf(edge, /JSON\.stringify|HttpServerResponse\.json|Response\.json/), {})
  assert.isAbove(Object.keys(usesOf(edge, /\bjsonText\(/)).length, 10)
})
