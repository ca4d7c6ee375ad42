/** Every text that reaches the backend has been estimated. The texts are found in the schemas, not listed here. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import * as fc from "fast-check"
import { Backend } from "../../../../src/backend/Backend.ts"
import type { DecodedRequest, InferenceRequest, Json } from "../../../../src/domain/Inference.ts"
import type { RequestDecoder } from "../../../../src/http/dialect/Dialect.ts"
import * as native from "../../../../src/http/dialect/native/dialect.ts"
import * as openai from "../../../../src/http/dialect/openai/dialect.ts"
import { withPromptSize } from "../../../../src/http/dialect/promptEstimate.ts"
import { dropUnsupported } from "../../../../src/request/capabilities.ts"
import { type FakeBackend } from "../../../support/FakeBackend.ts"
import { modelNamed, permitFor } from "../../../support/permits.ts"
import { bodiesWith } from "../../../support/requestFields.ts"
import { withBackend } from "../../backend/calls.ts"
import { decoding } from "../decoding.ts"

const letters = (count: number) => "zqxj".repeat(count / 4)
/** The longest that a field takes is the one that is tried. */
const lengths = [4000, 400, 40]

const dialects = Object.entries({ ...native, ...openai })

/** What is written on the backend's connection for `request`. */
const written = Effect.fnUntraced(function* (fake: FakeBackend, request: InferenceRequest) {
  const backend = yield* Backend
  const before = fake.requests.length
  const [permit, call] = [permitFor("m:latest"), { request, maxTokens: 100, runs: 1 }]
  const asked =
    request.kind === "embed" || request.kind === "embeddings"
      ? backend.embed(permit, call)
      : request.kind === "show"
        ? backend.show(permit)
        : Effect.scoped(backend.forward(permit, call))
  yield* Effect.ignore(asked)
  return fake.requests[before]?.raw ?? ""
})

interface Places {
  /** where a text may stand, by the schema */
  readonly all: ReadonlySet<string>
  /** where it reached the backend, at some length and among some other fields */
  readonly forwarded: ReadonlySet<string>
}

const isImage = (path: string) => path.endsWith("images[]") || path.includes("image_url")

const shortened = (body: Json, length: number): Json =>
  JSON.parse(JSON.stringify(body).replaceAll(letters(length), letters(4)))

/** Asserts that a text that reaches the backend adds to the estimate. */
const places = Effect.fnUntraced(function* (fake: FakeBackend, decoder: RequestDecoder) {
  const { decoded } = decoding(decoder)
  const [all, forwarded] = [new Set<string>(), new Set<string>()]
  for (const length of lengths) {
    for (const { body, path } of bodiesWith(decoder.accepts, letters(length))) {
      all.add(path)
      const request = forwarded.has(path) ? undefined : Result.getOrUndefined(decoded(body))
      if (request === undefined) continue
      const times = (yield* written(fake, request)).split(letters(length)).length - 1
      if (times === 0) continue
      forwarded.add(path)
      if (isImage(path)) {
        assert.isAtLeast(request.promptEstimate, 1024, path)
        continue
      }
      const other = Result.getOrUndefined(decoded(shortened(body, length)))
      const counted = request.promptEstimate - (other?.promptEstimate ?? Number.NaN)
      assert.isAtLeast(counted, ((length - 4) * times) / 4 - 1, `${path} is forwarded and not estimated`)
    }
  }
  return { all, forwarded } satisfies Places
})

const inSchema = (path: string) =>
  ["{key}", "{}", "{}[]", "{}[][]", "{}{key}", "{}{}"].map((place) => path + place)

/** Places whose text does not reach the backend. Whoever adds to this list says why. */
const notForwarded: Readonly<Record<string, ReadonlyArray<string>>> = {
  // The discovered spelling of the model is sent, never the client's. Of a schema only known keywords pass.
  nativeChat: [...inSchema("format"), "model"],
  // A template is refused.
  nativeGenerate: [...inSchema("format"), "model", "template"],
  nativeEmbed: ["model"],
  nativeEmbeddings: ["model"],
  nativeShow: ["model", "name"],
  // The name chooses one of `tools`.
  openaiChat: ["model", ...inSchema("response_format.json_schema.schema"), "tool_choice.function.name"],
  openaiCompletions: ["model"],
  // Any JSON is let in, so that token arrays get a sentence of their own.
  openaiEmbeddings: ["input[][]", "input{key}", "input{}", "model"]
}

const request = (body: DecodedRequest["body"], more: Partial<DecodedRequest> = {}): InferenceRequest =>
  withPromptSize({
    kind: "chat",
    model: "m",
    stream: true,
    body,
    options: {},
    maxTokens: undefined,
    ...more
  })

describe("the estimate of a prompt", () => {
  for (const [name, dialect] of dialects) {
    it.live(`when a text of any field of ${name} reaches the backend, then it has been estimated`, () =>
      withBackend((fake) =>
        Effect.gen(function* () {
          const { all, forwarded } = yield* places(fake, dialect)
          const rest = [...all].filter((path) => !forwarded.has(path))
          assert.deepStrictEqual(rest.sort(), notForwarded[name])
        })
      )
    )
  }

  it("is at least a quarter of all strings, keys and numbers in the body and the options", () => {
    const json = fc.jsonValue({ maxDepth: 4 })
    const textBytes = (value: Json): number => {
      if (typeof value === "string") return Buffer.byteLength(value)
      if (typeof value === "number") return String(value).length
      if (typeof value !== "object" || value === null) return 0
      return Object.entries(value).reduce(
        (sum, [key, inner]) => sum + (Array.isArray(value) ? 0 : Buffer.byteLength(key)) + textBytes(inner),
        0
      )
    }
    fc.assert(
      fc.property(json, json, (one, other) => {
        const { promptBytes, promptEstimate } = request(
          { one: [toJson(one)] },
          { options: { other: [toJson(other)] } }
        )
        const least = textBytes(toJson(one)) + textBytes(toJson(other))
        assert.isAtLeast(promptBytes, least)
        assert.isAtLeast(promptEstimate, least / 4)
      })
    )
  })

  it("counts images and context by their place, not by their name", () => {
    const images = ["A".repeat(8000)]
    assert.isBelow(request({ messages: [{ role: "user", content: "", images }] }).promptEstimate, 1100)
    assert.isBelow(request({ prompt: "", images }, { kind: "generate" }).promptEstimate, 1100)
    const context = Array.from({ length: 500 }, () => 1)
    assert.isBelow(request({ prompt: "", context }, { kind: "generate" }).promptEstimate, 510)
    const call = { function: { name: "f", arguments: { images } } }
    assert.isAbove(request({ messages: [{ role: "assistant", tool_calls: [call] }] }).promptEstimate, 2000)
  })

  it("is nothing for a description, and at least one token for everything else", () => {
    assert.strictEqual(request({}, { kind: "show" }).promptEstimate, 0)
    assert.isAtLeast(request({}).promptEstimate, 1)
  })

  it("when the model cannot do what a request wishes, then the request only gets smaller", () => {
    const wish = request(
      { messages: [{ role: "user", content: "hi" }], think: "high" },
      { thinkIfAble: true }
    )
    const left = dropUnsupported(wish, modelNamed("m"))
    assert.notDeepEqual(left.body, wish.body)
    assert.isAtMost(withPromptSize(left).promptEstimate, wish.promptEstimate)
  })
})

const toJson = (value: unknown): Json => JSON.parse(JSON.stringify(value))
