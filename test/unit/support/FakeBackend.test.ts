/**
 * The double answers in the shapes of the real server, as recorded (`npm run record`). A field that only one of them
 * has is named in `differences`, with the reason.
 */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Json, JsonObject } from "../../../src/domain/Inference.ts"
import { fake, type FakeBackend, makeFakeBackend } from "../../support/FakeBackend.ts"
import { readRecordings, type Recording } from "../../support/recordings/Recording.ts"
import { asked } from "../../support/recordings/requests.ts"

const { recordings } = readRecordings()

const recorded = (name: string): Recording => {
  const found = recordings.find((recording) => recording.name === name)
  return found ?? assert.fail(`not recorded: ${name}; npm run record`)
}

/** Paths of fields and the types at them: `message.content: string`. */
const shapeOf = (value: Json, at = ""): ReadonlyArray<string> => {
  if (Array.isArray(value))
    return [`${at}: array`, ...value.slice(0, 1).flatMap((item) => shapeOf(item, `${at}[]`))]
  if (typeof value === "object" && value !== null) {
    const inner = Object.entries(value).flatMap(([key, item]) =>
      shapeOf(item, at === "" ? key : `${at}.${key}`)
    )
    return at === "" ? inner : [`${at}: object`, ...inner]
  }
  return [`${at}: ${value === null ? "null" : typeof value}`]
}

/** Fields that one of them has alone, and why. */
const differences: Readonly<Record<string, string>> = {
  "models[].capabilities: array": "newer servers list them, and the gateway reads them there",
  "models[].capabilities[]: string": "newer servers list them, and the gateway reads them there",
  "message.tool_calls[].function.index: number": "0.11.4 leaves out an index of 0, newer servers send it",
  "context: array": "deprecated; the double remembers no prompt",
  "context[]: number": "deprecated; the double remembers no prompt",
  "license: string": "as the model has one",
  "messages[].role: string": "as the model has them",
  "prompt_eval_count: number": "left out when it is zero"
}

const compare = (name: string, real: Json, double: Json, except: ReadonlyArray<string> = []) => {
  const [theirs, ours] = [new Set(shapeOf(real)), new Set(shapeOf(double))]
  const alone = (one: ReadonlySet<string>, other: ReadonlySet<string>) =>
    [...one].filter((field) => !other.has(field))
  const apart = [...alone(theirs, ours), ...alone(ours, theirs)].filter(
    (field) => !(field in differences) && !except.some((start) => field.startsWith(start))
  )
  assert.deepStrictEqual(apart, [], name)
}

interface Answer {
  readonly status: number
  readonly contentType: string
  readonly frames: ReadonlyArray<JsonObject>
}

const ask = Effect.fnUntraced(function* ({ url }: FakeBackend, name: string) {
  const request = asked.find((one) => one.name === name) ?? assert.fail(`not asked: ${name}`)
  const { body, path } = request
  return yield* Effect.promise(async (signal): Promise<Answer> => {
    const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }
    const answer = await fetch(new URL(path, url), { ...sent, signal })
    const text = await answer.text()
    const frames = text
      .split("\n")
      .filter((line) => line !== "")
      .map((line): JsonObject => JSON.parse(line))
    return { status: answer.status, contentType: answer.headers.get("content-type") ?? "", frames }
  })
})

const first = ({ frames }: Recording | Answer): JsonObject => frames[0] ?? assert.fail("no frame")
const last = ({ frames }: Recording | Answer): JsonObject => frames.at(-1) ?? assert.fail("no frame")
/** The first frame that has the field in its message. */
const withField = ({ frames }: Recording, field: string): JsonObject =>
  frames.find(({ message }) => JSON.stringify(message ?? "").includes(`"${field}":`)) ??
  assert.fail(`no ${field}`)

it.effect(
  "when the fake server answers, then status, content type and frames are those of the real server",
  () =>
    Effect.gen(function* () {
      const double = yield* makeFakeBackend
      for (const name of [
        "chat",
        "chat that loads",
        "generate",
        "generate that loads",
        "embed",
        "embed of nothing",
        "embeddings",
        "tags",
        "version"
      ]) {
        const [real, ours] = [recorded(name), yield* ask(double, name)]
        assert.deepStrictEqual([ours.status, ours.contentType], [real.status, real.contentType], name)
        compare(`${name}, first frame`, first(real), first(ours))
        compare(`${name}, last frame`, last(real), last(ours))
      }
    })
)

it.effect("when the fake server describes a model, then it has every field of the real description", () =>
  Effect.gen(function* () {
    const double = yield* makeFakeBackend
    const [real, ours] = [first(recorded("show")), first(yield* ask(double, "show"))]
    // The double adds what a gateway has to take out; which keys model_info has is the model's own matter.
    const more = ["model_info", "remote_", "projector_info", "_something_new", "tensors"]
    compare("show", real, ours, more)
    assert.isObject(real["model_info"])
    assert.isObject(ours["model_info"])
  })
)

it("when tests write lines of their own, then these have the fields of the real server's lines", () => {
  compare("text", first(recorded("chat")), fake.chat(" x"))
  compare("text of generate", first(recorded("generate")), fake.generate(" x"))
  compare("last line", last(recorded("chat")), fake.done())
  compare("last line of generate", last(recorded("generate")), fake.done("generate"))
  compare("thinking", withField(recorded("chat that thinks"), "thinking"), fake.thinking(" x"))
  const call = withField(recorded("chat that calls a tool"), "tool_calls")
  compare("tool call", call, fake.toolCall("get_weather", { city: "Paris" }))
  compare("error", first(recorded("unknown model")), fake.error("x"))
})

it("when tests rely on a fact, then it is one of the real server's", () => {
  assert.strictEqual(recorded("unknown model").status, 404)
  assert.strictEqual(recorded("tools on a model without").status, 400)
  assert.strictEqual(last(recorded("chat"))["done"], true)
  assert.strictEqual(last(recorded("chat that loads"))["done_reason"], "load")
  const loop = recorded("a loop that ends without a last frame")
  assert.deepStrictEqual([loop.status, last(loop)["done"]], [200, false])
})
