/** Every text that reaches the backend has been estimated. The texts are found in the schemas, not listed here. */
import { uncounted } from "../../../../src/memory/MemoryLedger.ts"
import { noOutput } from "../../../../src/domain/outputPlan.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import * as fc from "fast-check"
import { Backend } from "../../../../src/backend/Backend.ts"
import type { DecodedRequest, InferenceRequest, Json, JsonObject } from "../../../../src/domain/Inference.ts"
import type { RequestDecoder } from "../../../../src/http/dialect/Dialect.ts"
import * as native from "../../../../src/http/dialect/native/dialect.ts"
import * as openai from "../../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../../src/http/dialect/responses/dialect.ts"
import { withPromptSize } from "../../../../src/http/dialect/promptEstimate.ts"
import { type FakeBackend } from "../../../support/FakeBackend.ts"
import { permitFor, prepared } from "../../../support/permits.ts"
import { bodiesWith } from "../../../support/requestFields.ts"
import { test } from "../../backend/calls.ts"
import { decoding } from "../decoding.ts"

const letters = (count: number) => "zqxj".repeat(count / 4)
/** The longest that a field takes is the one that is tried. */
const lengths = [4000, 400, 40]

const dialects = Object.entries({ ...native, ...openai, responses })

/** What is written on the backend's connection for `request`. */
const written = Effect.fnUntraced(function* (fake: FakeBackend, request: InferenceRequest) {
  const backend = yield* Backend
  const before = fake.requests.length
  const permit = permitFor("m:latest", { request: prepared(request), numPredict: 100, plan: noOutput })
  const asked =
    request.kind === "embed" || request.kind === "embeddings"
      ? backend.embed(permit, uncounted)
      : request.kind === "show"
        ? backend.show(permit, uncounted)
        : Effect.scoped(backend.forward(permit, uncounted))
  yield* Effect.ignore(asked)
  return fake.requests[before]?.raw ?? ""
})

interface Places {
  /** where a text may stand, by the schema */
  readonly all: ReadonlySet<string>
  /** where it reached the backend, at some length and among some other fields */
  readonly forwarded: ReadonlySet<string>
  /** of them, where it stands in the prompt as JSON */
  readonly asJson: ReadonlySet<string>
}

const isImage = (path: string) => path.endsWith("images[]") || path.includes("image_url")

const replaced = (body: Json, length: number, by: string): Json =>
  JSON.parse(
    JSON.stringify(body)
      .replaceAll(letters(length), by)
      // A file is base64.
      .replaceAll(btoa(letters(length)), btoa(by))
  )

/** Whether `text` stands inside of an object that is neither the body nor a message: a prompt has it as JSON. */
const isInJson = (value: Json, text: string, inObject = false): boolean => {
  if (typeof value === "string") return inObject && value.includes(text)
  if (typeof value !== "object" || value === null) return false
  if (Array.isArray(value)) return value.some((item) => isInJson(item, text, inObject))
  return Object.entries(value).some(([key, inner]) => key.includes(text) || isInJson(inner, text, true))
}
const isWrittenAsJson = ({ messages = [], ...body }: JsonObject, text: string): boolean =>
  [body, ...(Array.isArray(messages) ? messages : [])].some((ours) =>
    Object.values<Json>(ours).some((value) => isInJson(value, text))
  )

/** What Go's JSON has for a `<`. */
const escape = "\\u003c"

/** Asserts that a text that reaches the backend adds to the estimate. */
const places = Effect.fnUntraced(function* (fake: FakeBackend, decoder: RequestDecoder) {
  const { decoded } = decoding(decoder)
  const [all, forwarded, asJson] = [new Set<string>(), new Set<string>(), new Set<string>()]
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
      const other = Result.getOrUndefined(decoded(replaced(body, length, letters(4))))
      const counted = request.promptEstimate - (other?.promptEstimate ?? Number.NaN)
      assert.isAtLeast(counted, ((length - 4) * times) / 4 - 1, `${path} is forwarded and not estimated`)
      if (!isWrittenAsJson(request.body, letters(length))) continue
      const escaped = Result.getOrUndefined(decoded(replaced(body, length, "<".repeat(length))))
      // A schema is written anew, and may be without this text then.
      if (escaped === undefined || !isWrittenAsJson(escaped.body, "<".repeat(length))) continue
      asJson.add(path)
      const bytes = (length - 4) * times * escape.length
      assert.isAtLeast(
        escaped.promptEstimate - (other?.promptEstimate ?? Number.NaN),
        bytes / 4 - 1,
        `${path} is escaped, and is not estimated as escaped`
      )
    }
  }
  return { all, forwarded, asJson } satisfies Places
})

const inSchema = (path: string) =>
  ["{key}", "{}", "{}[]", "{}[][]", "{}{key}", "{}{}"].map((place) => path + place)

/** For whom a request is: the audit's business. `user` is the other field, in the order of the alphabet. */
const endUser = ["safety_identifier"]

/** It is refused. */
const logitBias = [...inSchema("logit_bias"), "logit_bias{schema}"]

/** Places whose text does not reach the backend. Whoever adds to this list says why. */
const notForwarded: Readonly<Record<string, ReadonlyArray<string>>> = {
  // The discovered spelling of the model is sent, never the client's. Of a schema only known keywords pass.
  nativeChat: [...inSchema("format"), "model"],
  nativeGenerate: [...inSchema("format"), "model"],
  nativeEmbed: ["model"],
  nativeEmbeddings: ["model"],
  nativeShow: ["model", "name"],
  // The name chooses one of `tools`.
  openaiChat: [
    ...logitBias,
    "model",
    ...inSchema("response_format.json_schema.schema"),
    ...endUser,
    "tool_choice.function.name",
    "user"
  ],
  openaiCompletions: [...logitBias, "model", ...endUser, "user"],
  // Any JSON is let in, so that token arrays get a sentence of their own.
  openaiEmbeddings: ["input[][]", "input{key}", "input{}", "model", ...endUser, "user"],
  // The answer repeats `metadata` and the key of a cache.
  responses: [
    "metadata{schema}",
    "metadata{key}",
    "metadata{}",
    "include[]",
    "model",
    "reasoning.summary",
    ...endUser,
    "text.format.name",
    ...inSchema("text.format.schema"),
    "tool_choice.name",
    "tool_choice.tools[].name",
    "tool_choice.tools[].type",
    "prompt_cache_key",
    "user"
  ]
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
    test(`when a text of any field of ${name} reaches the backend, then it has been estimated`, function* (fake) {
      const { all, asJson, forwarded } = yield* places(fake, dialect)
      const rest = [...all].filter((path) => !forwarded.has(path))
      assert.sameMembers(rest, [...(notForwarded[name] ?? [])])
      if (["nativeChat", "openaiChat", "responses"].includes(name)) {
        assert.isTrue(
          [...asJson].some((path) => path.includes("arguments")),
          [...asJson].join(" ")
        )
      }
    })
  }

  it("when a body has strings, keys and numbers, then it is at least a quarter of their bytes", () => {
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

  it("when a value is inside an object, then it is that of Go's JSON, and elsewhere that of the text", () => {
    const call = (text: string) => {
      const one = { function: { name: "f", arguments: { a: text } } }
      return request({ messages: [{ role: "assistant", tool_calls: [one] }] }).promptBytes
    }
    for (const [sign, bytes] of [
      ["a", 1],
      ['"', 2],
      ["\\", 2],
      ["\n", 2],
      ["<", 6],
      [">", 6],
      ["&", 6],
      ["\u0001", 6],
      ["\u2028", 6],
      ["\u2029", 6],
      ["é", 2],
      ["😀", 4]
    ] as const) {
      assert.strictEqual(call(sign.repeat(100)) - call(""), bytes * 100, JSON.stringify(sign))
      const content = (text: string) => request({ messages: [{ role: "user", content: text }] }).promptBytes
      assert.strictEqual(content(sign.repeat(100)) - content(""), Buffer.byteLength(sign) * 100)
      const input = (text: string) => request({ input: [text] }, { kind: "embed" }).promptBytes
      assert.strictEqual(input(sign.repeat(100)) - input(""), Buffer.byteLength(sign) * 100)
    }
  })

  it("when images and context are given, then they are counted by their place, not by their name", () => {
    const images = ["A".repeat(8000)]
    assert.isBelow(request({ messages: [{ role: "user", content: "", images }] }).promptEstimate, 1100)
    assert.isBelow(request({ prompt: "", images }, { kind: "generate" }).promptEstimate, 1100)
    const context = Array.from({ length: 500 }, () => 1)
    assert.isBelow(request({ prompt: "", context }, { kind: "generate" }).promptEstimate, 510)
    const call = { function: { name: "f", arguments: { images } } }
    assert.isAbove(request({ messages: [{ role: "assistant", tool_calls: [call] }] }).promptEstimate, 2000)
  })

  it("when a description is asked for, then it is nothing, and for everything else at least one token", () => {
    assert.strictEqual(request({}, { kind: "show" }).promptEstimate, 0)
    assert.isAtLeast(request({}).promptEstimate, 1)
  })
})

const toJson = (value: unknown): Json => JSON.parse(JSON.stringify(value))
