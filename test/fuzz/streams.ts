/** One backend answer through wire, frames and both encoders; and what must hold of what a client would read. */
import { uncounted } from "../../src/memory/MemoryLedger.ts"
import { assert } from "@effect/vitest"
import { type Array as Arr, Cause, Effect, Exit, type Pull } from "effect"
import { frameBoundsOf } from "../../src/backend/answerBounds.ts"
import { pullFrames } from "../../src/backend/ollama/frames.ts"
import { endOfBody } from "../../src/backend/ollama/UpstreamCall.ts"
import { BackendFailed } from "../../src/domain/Errors.ts"
import { isObject } from "../../src/domain/json.ts"
import type { Frame } from "../../src/domain/Frame.ts"
import type { InferenceRequest, Json, JsonObject } from "../../src/domain/Inference.ts"
import { usageOf } from "../../src/domain/Usage.ts"
import type { Encoder } from "../../src/http/dialect/Dialect.ts"
import { toErrorResponse } from "../../src/http/errors/errorResponses.ts"
import { Fold } from "../../src/http/dialect/fold.ts"
import { fake } from "../support/FakeBackend.ts"
import { callOf } from "../support/permits.ts"
import { cut, mutateBytes } from "./bytes.ts"
import { mutateTree, textOf, treeOf } from "./jsonTree.ts"
import type { Random } from "./Random.ts"
import { checkStream } from "../unit/http/dialect/responses/events.ts"
import { surfaces } from "./requests.ts"

export type Kind = "chat" | "generate"

/** What must never come through, however the rest of the line is mangled. */
const secret = "gpu-7.internal:11434"

const logprobs = [{ token: "a", logprob: -0.5, bytes: [97], top_logprobs: [{ token: "b", logprob: -2 }] }]

const seeds: { readonly [K in Kind]: ReadonlyArray<ReadonlyArray<JsonObject>> } = {
  chat: [
    [fake.chat("Grüße"), fake.chat(" 🚀"), fake.done()],
    [fake.thinking("hm"), fake.toolCall("f", { a: 1, 0: "x" }, "c1"), fake.toolCall("g", {}), fake.done()],
    [
      { ...fake.chat("a"), logprobs, remote_host: secret },
      { ...fake.done(), _debug_info: { url: secret } }
    ],
    [fake.chat("a"), fake.error(`dial tcp ${secret}: refused`)],
    [fake.done("chat", { done_reason: "load" })]
  ],
  generate: [
    [fake.generate("a"), fake.generate("b\n\n"), fake.done("generate", { context: [1, 2, 3] })],
    [
      { ...fake.generate("a"), logprobs, remote_model: secret },
      fake.done("generate", { done_reason: "length" })
    ],
    [fake.error(secret)]
  ]
}

export interface Answer {
  readonly bytes: Buffer
  readonly pieces: ReadonlyArray<Buffer>
  readonly ends: "end" | "reset"
  /** whether only values the backend itself might send were changed, so that `secret` stays where it was */
  readonly intact: boolean
}

export const mutatedAnswer = (kind: Kind, random: Random): Answer => {
  const lines = seeds[kind][random.int(seeds[kind].length)] ?? []
  const texts = lines.map((line) => {
    const tree = treeOf(line)
    const mutations = random.chance(2) ? random.int(3) : 0
    for (let i = mutations; i > 0; i -= 1) mutateTree(tree, random)
    return { text: textOf(tree, random), mutations }
  })
  const newline = random.pick(["\n", "\n", "\r\n", "\n\n", " "])
  const whole = Buffer.from(texts.map(({ text }) => text).join(newline) + (random.chance(3) ? "" : newline))
  const mangled = random.chance(3)
  const bytes = mangled ? mutateBytes(whole, random) : whole
  return {
    bytes,
    pieces: cut(bytes, random),
    ends: random.chance(5) ? "reset" : "end",
    intact: !mangled && texts.every(({ mutations }) => mutations === 0)
  }
}

const requestFor = (kind: Kind): InferenceRequest => ({
  kind,
  model: "client-spelling",
  stream: true,
  body: {},
  options: {},
  maxTokens: 10,
  promptBytes: 4,
  promptEstimate: 9,
  ...(kind === "generate" ? { echo: "echo" } : {})
})

const dialectsOf = {
  chat: ["native-chat", "openai-chat", "responses"],
  generate: ["native-generate", "openai-completions"]
} as const

const encodersOf = (kind: Kind): ReadonlyArray<readonly [string, Encoder]> =>
  dialectsOf[kind].map((name) => [
    name,
    surfaces[name].encoder(requestFor(kind), { requestId: "r", seal: (ids) => ids })
  ])

const objectIn = (text: string): JsonObject => {
  const value: Json = JSON.parse(text)
  assert.isTrue(isObject(value), text)
  return isObject(value) ? value : {}
}

/** NDJSON: whole lines, one end, the client's own name for the model. */
const assertNative = (text: string, done: boolean): void => {
  if (text === "") return
  assert.isTrue(text.endsWith("\n"))
  const lines = text.slice(0, -1).split("\n").map(objectIn)
  const ends = lines.filter((line) => line["done"] === true)
  assert.strictEqual(ends.length, done ? 1 : 0)
  assert.strictEqual(lines.filter((line) => "error" in line).length, done ? 0 : 1)
  assert.isTrue("error" in (lines.at(-1) ?? {}) || lines.at(-1)?.["done"] === true)
  for (const line of lines) if (!("error" in line)) assert.strictEqual(line["model"], "client-spelling")
}

/** Server-sent events: each of one line, `[DONE]` exactly when all went well. */
const assertEvents = (text: string, done: boolean): void => {
  if (text === "") return
  assert.isTrue(text.endsWith("\n\n"))
  const events = text.slice(0, -2).split("\n\n")
  for (const event of events) assert.match(event, /^data: [^\r\n]+$/)
  assert.strictEqual(events.filter((event) => event === "data: [DONE]").length, done ? 1 : 0)
  assert.strictEqual(events.at(-1) === "data: [DONE]", done)
  const objects = events.filter((event) => event !== "data: [DONE]").map((event) => objectIn(event.slice(6)))
  assert.strictEqual(objects.filter((object) => "error" in object).length, done ? 0 : 1)
  for (const object of objects)
    if (!("error" in object)) assert.strictEqual(object["model"], "client-spelling")
}

/** What a client may read on each surface. `done`: whether all went well. */
const assertText = (name: string, text: string, done: boolean): void => {
  if (name.startsWith("native")) return assertNative(text, done)
  if (name !== "responses") return assertEvents(text, done)
  assert.strictEqual(checkStream(text).status !== "failed", done)
}

const assertCharge = (final: Frame, frames: number): void => {
  const usage = usageOf(final, {
    frames,
    least: frames,
    estimate: frames,
    firstRun: 0,
    promptEstimate: 9,
    promptBytes: 4,
    maxOutput: 10
  })
  for (const count of [usage.tokensIn, usage.tokensOut]) {
    assert.isTrue(Number.isSafeInteger(count) && count >= 0, `charged ${count}`)
  }
  assert.isAtMost(usage.tokensOut, Math.max(10, frames))
}

export type Outcome = "done" | "failed"

/** The frames of an answer, as they are pulled. */
const pullOf = (kind: Kind, answer: Omit<Answer, "bytes">) => {
  const pieces = answer.ends === "end" ? [...answer.pieces, endOfBody] : [...answer.pieces]
  const response = {
    bytes: Effect.suspend((): Pull.Pull<Arr.NonEmptyReadonlyArray<Buffer>, BackendFailed> => {
      const piece = pieces.shift()
      if (piece !== undefined) return Effect.succeed([piece])
      return new BackendFailed({ fault: "cut", cause: new Error(`ECONNRESET ${secret}`) })
    }),
    abort: () => undefined,
    discard: () => undefined
  }
  const head = {
    status: 200,
    contentType: "application/x-ndjson",
    encoded: false,
    delimited: true,
    retryAfterS: undefined
  }
  const limits = {
    bounds: frameBoundsOf(callOf({ kind }, 100)),
    share: uncounted,
    isFolded: true,
    heard: () => {}
  }
  return pullFrames(response, kind, head, limits)
}

/** Dies when the stream neither ends nor fails, or a client would read anything it should not. */
export const tryAnswer = (kind: Kind, answer: Omit<Answer, "bytes">): Outcome => {
  const pull = pullOf(kind, answer)
  const encoders = encodersOf(kind)
  const texts = encoders.map(() => "")
  const folds = encodersOf(kind).map(([name, encoder]) => ({
    name,
    encoder,
    fold: new Fold()
  }))
  let outcome: Outcome | undefined
  let last: Frame | undefined
  let frames = 0
  for (let turn = 0; outcome === undefined; turn += 1) {
    assert.isBelow(turn, answer.pieces.length + 2, "goes on for ever")
    const exit = Effect.runSyncExit(pull)
    if (Exit.isFailure(exit)) {
      const error = Cause.findErrorOption(exit.cause)
      assert.strictEqual(error._tag, "Some", "a defect")
      if (error._tag === "None") return "failed"
      if (Cause.isDone(error.value)) outcome = "done"
      else {
        const face = toErrorResponse(error.value)
        assert.strictEqual(error.value._tag, "BackendFailed")
        encoders.forEach(([, encoder], i) => (texts[i] += encoder.failure(face, "id")))
        outcome = "failed"
      }
    } else {
      const read = exit.value
      assert.isNotTrue(last?.done, "frames after the last")
      for (const { fold } of folds) for (const frame of read) fold.add(frame)
      frames += read.length
      last = read.at(-1)
      encoders.forEach(([, encoder], i) => (texts[i] += encoder.frames(read)))
    }
  }
  assert.strictEqual(last?.done === true, outcome === "done")
  encoders.forEach(([name], i) => assertText(name, texts[i] ?? "", outcome === "done"))
  if (outcome === "done") {
    for (const { encoder, fold, name } of folds) {
      const { frame } = fold
      assert.isDefined(frame)
      assertCharge(frame, frames)
      const text = encoder.object(frame)
      assert.strictEqual(objectIn(text)["model"], "client-spelling", name)
      texts.push(text)
    }
  }
  if (answer.intact) assert.notInclude(texts.join(""), secret)
  return outcome
}
