/** `openapi.json` is made of the code. Here the code is compared with what it says: what dialects accept and write. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { decodeShow } from "../../../src/backend/ollama/decodeModels.ts"
import { isObject } from "../../../src/domain/json.ts"
import type { Frame } from "../../../src/domain/Frame.ts"
import type { Json } from "../../../src/domain/Inference.ts"
import type { Dialect } from "../../../src/http/dialect/Dialect.ts"
import {
  nativeChat,
  nativeEmbed,
  nativeEmbeddings,
  nativeGenerate,
  nativeShow
} from "../../../src/http/dialect/native/dialect.ts"
import { openaiChat, openaiCompletions, openaiEmbeddings } from "../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../src/http/dialect/responses/dialect.ts"
import { generated } from "../../../build/openapi/generated.ts"
import { operationFor } from "../../../build/openapi/operations.ts"
import { routes } from "../../../src/http/routes.ts"
import { version } from "../../../src/version.ts"
import { invalidity, objection, openapi, openapiFile } from "../../support/openapi.ts"
import { bodiesWith } from "../../support/requestFields.ts"
import { decoding } from "./decoding.ts"

const operations = Object.entries(openapi.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, operation }))
)

for (const { file, text } of generated()) {
  it(`when ${path.basename(file)} is made anew, then it is as it stands (else: npm run openapi)`, () => {
    assert.strictEqual(readFileSync(file, "utf8"), text)
  })
}

it("when it is read by OpenAPI's own schema, then it is a valid document of version 3.1", () => {
  assert.strictEqual(invalidity(), "")
})

it("when a route is in the table, then it is in the document, and no other is", () => {
  assert.sameMembers(
    operations.map(({ name }) => name),
    routes.map(({ method, path }) => `${method} ${path}`)
  )
  assert.strictEqual(
    new Set(operations.map(({ operation }) => operation.operationId)).size,
    operations.length
  )
  assert.strictEqual(openapi.info.version, version)
})

it("when something is referred to, then it is there; and nothing is there that is not referred to", () => {
  const referred = new Set(
    [...openapiFile.matchAll(/"\$ref":\s*"#\/components\/([^"]+)"/g)].map(([, to]) => to)
  )
  const there = Object.entries(openapi.components).flatMap(([kind, entries]) =>
    Object.keys(entries).map((name) => `${kind}/${name}`)
  )
  assert.sameMembers([...referred], there)
})

it("when an error is shown as an example, then it has the shape of errors", () => {
  const examples = Object.entries(openapi.components.responses).flatMap(([name, response]) =>
    Object.values(response.content["application/json"].examples).map(({ value }) => ({ name, value }))
  )
  assert.isAtLeast(examples.length, 24)
  for (const { name, value } of examples)
    assert.strictEqual(objection(name.startsWith("Messages") ? "MessagesError" : "Error", value), "")
  const { error = {}, request_id = "" } = examples[0]?.value ?? {}
  assert.include(objection("Error", { error: { ...error, code: "400" }, request_id }), "code")
  assert.include(objection("Error", { error: { ...error, cause: "x" }, request_id }), "additional")
})

it("when a body has an example, then its endpoint and its schema take it, and each body has one", () => {
  for (const route of routes) {
    if (!("dialect" in route)) continue
    const { example = null, request = "" } = operationFor(route)
    assert.strictEqual(decoding(route.dialect).refused(example), "accepted")
    assert.strictEqual(objection(request, example), "")
  }
})

/** Places of a schema that generators of clients take for something else. */
const unclear = (schema: Json, place: string): ReadonlyArray<string> => {
  if (Array.isArray(schema)) return schema.flatMap((one, i) => unclear(one, `${place}.${i}`))
  if (!isObject(schema)) return []
  const { anyOf, properties } = schema
  const isUnclear =
    schema["allOf"] !== undefined ||
    (anyOf !== undefined && Object.keys(schema).some((key) => key !== "anyOf" && key !== "description")) ||
    (isObject(properties) && schema["type"] !== "object")
  return [
    ...(isUnclear ? [place] : []),
    ...(isObject(properties) && place.includes(".") ? [`${place}: an object without a name`] : []),
    ...Object.entries(schema).flatMap(([key, inner]) =>
      key === "not" ? [] : unclear(inner, `${place}.${key}`)
    )
  ]
}

it("when generators read the schemas, then each object has a name and a type, and nothing stands beside an anyOf", () => {
  const { schemas } = openapi.components
  assert.deepStrictEqual(
    Object.entries(schemas).flatMap(([name, schema]) => unclear(schema, name)),
    []
  )
  const names = Object.keys(schemas).map((name) => name.toLowerCase())
  assert.strictEqual(new Set(names).size, names.length)
  assert.isAbove(unclear({ properties: { a: { allOf: [] } } }, "a").length, 1)
})

it("when a seed has a bound, then the document has it exactly", () => {
  assert.include(openapiFile, '"minimum": -9223372036854775808')
  assert.notMatch(openapiFile, /\d{13}000\b/)
})

/** What a body may have in a wrong place. */
const odd: ReadonlyArray<Json> = [null, true, 1.5, -1e9, 1e12, "x", "", [], {}, [1], [{}], [[]]]

/** The body with any one of its values replaced or left out. */
function* variants(value: Json): Generator<Json> {
  yield* odd
  if (Array.isArray(value)) {
    for (const [i, item] of value.entries())
      for (const other of variants(item)) yield value.map((kept, at) => (at === i ? other : kept))
  } else if (isObject(value)) {
    for (const [name, inner] of Object.entries(value)) {
      yield Object.fromEntries(Object.entries(value).filter(([other]) => other !== name))
      for (const other of variants(inner)) yield { ...value, [name]: other }
    }
  }
}

/** What a schema cannot say: it is about two fields, or about the text or the JSON schema inside of one. */
const beyondSchemas =
  /^format\.|a JSON object as text|expected without system and context|input: expected a message|the name of a function|no PDF, address/

for (const [schema, dialect] of Object.entries({
  NativeChatRequest: nativeChat,
  NativeGenerateRequest: nativeGenerate,
  ChatCompletionRequest: openaiChat,
  ResponseRequest: responses,
  CompletionRequest: openaiCompletions,
  EmbedRequest: nativeEmbed,
  EmbeddingsRequest: nativeEmbeddings,
  EmbeddingRequest: openaiEmbeddings,
  ShowRequest: nativeShow
})) {
  it(`when ${schema} is compared with the endpoint, then both accept and refuse the same bodies`, () => {
    const { refused } = decoding(dialect)
    const tried = { accepted: 0, refused: 0 }
    for (const { body: filled } of bodiesWith(dialect.accepts, "qzqz")) {
      for (const body of [filled, ...variants(filled)]) {
        const why = refused(body)
        assert.notMatch(why, /readonly|undefined|[{}]|\| /)
        if (beyondSchemas.test(why)) continue
        const isAccepted = why === "accepted"
        assert.strictEqual(objection(schema, body) === "", isAccepted, `${why}: ${JSON.stringify(body)}`)
        tried[isAccepted ? "accepted" : "refused"] += 1
      }
      if (tried.refused > 1000 && tried.accepted > 20) break
    }
    assert.isAbove(tried.accepted, 10)
    assert.isAbove(tried.refused, 100)
  })
}

const user = { role: "user", content: "Hello" }

const frames: readonly [Frame, ...ReadonlyArray<Frame>] = [
  { createdAt: "2026-01-01T00:00:00Z", text: "Hi", thinking: "hm", done: false },
  {
    createdAt: "2026-01-01T00:00:00Z",
    text: "",
    toolCalls: [{ name: "f", arguments: { a: 1 } }],
    logprobs: [{ token: "a", logprob: -1 }],
    done: false
  },
  {
    createdAt: "2026-01-01T00:00:00Z",
    text: "",
    done: true,
    doneReason: "stop",
    totalDuration: 5,
    promptEvalCount: 7,
    evalCount: 3
  }
]

const answers: ReadonlyArray<readonly [Dialect, Json, piece: string, whole: string]> = [
  [nativeChat, { model: "m" }, "NativeChatFrame", "NativeChatFrame"],
  [nativeGenerate, { model: "m" }, "NativeGenerateFrame", "NativeGenerateFrame"],
  [openaiChat, { model: "m", messages: [user] }, "ChatCompletionChunk", "ChatCompletion"],
  [openaiCompletions, { model: "m", prompt: "Hi" }, "Completion", "Completion"],
  [responses, { model: "m", input: "Hi" }, "ResponseEvent", "ResponseResource"],
  [
    openaiChat,
    { model: "m", messages: [user], stream_options: { include_usage: true } },
    "ChatCompletionChunk",
    "ChatCompletion"
  ]
]

it("when Embed, Embeddings and EmbeddingList are compared with the answers, then they describe them", () => {
  const answer = {
    vectors: ["[0.1]"],
    totalDuration: 5,
    promptEvalCount: 4
  }
  for (const [dialect, body, schema] of [
    [nativeEmbed, { model: "m", input: "a" }, "Embed"],
    [nativeEmbeddings, { model: "m", prompt: "a" }, "Embeddings"],
    [openaiEmbeddings, { model: "m", input: "a" }, "EmbeddingList"],
    [openaiEmbeddings, { model: "m", input: "a", encoding_format: "base64" }, "EmbeddingList"]
  ] as const) {
    const said = [dialect.encode(decoding(dialect).accepted(body), answer)].flat().map(String).join("")
    assert.strictEqual(objection(schema, JSON.parse(said)), "", said)
  }
  const shown = decodeShow(
    '{"details":{},"license":"MIT","system":"x","template":"y","capabilities":["completion"]}'
  )
  assert.strictEqual(objection("Show", shown), "")
})

for (const [dialect, body, piece, whole] of answers) {
  it(`when the endpoint answers ${JSON.stringify(body)}, then ${piece} and ${whole} describe it`, () => {
    const encoder = dialect.encoder(decoding(dialect).accepted(body), { requestId: "r", seal: (ids) => ids })
    const said = encoder
      .frames(frames)
      .split("\n")
      .map((line) => line.replace(/^data: |^event: .*/, ""))
      .filter((line) => line !== "" && line !== "[DONE]")
    assert.isAtLeast(said.length, 2)
    for (const line of said) assert.strictEqual(objection(piece, JSON.parse(line)), "", line)
    const [, , last] = frames
    const folded = { ...frames[1], ...last, text: "Hi" }
    assert.strictEqual(
      objection(whole, JSON.parse(encoder.object({ createdAt: "", done: true, ...folded }))),
      ""
    )
  })
}
