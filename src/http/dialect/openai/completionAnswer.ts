/** The answer of `POST /v1/completions`: the same `object` in streams and single answers (docs/protocol.md, "OpenAI answers"). */
import { Option, Schema } from "effect"
import { type Frame, hasOnlyText } from "../../../domain/Frame.ts"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { type Encoder, joined } from "../Dialect.ts"
import {
  around,
  createdOf,
  ending,
  event,
  openaiFailure,
  openaiId,
  systemFingerprint,
  usageOf
} from "./chatAnswer.ts"

const Logprob = Schema.Struct({ token: Schema.String, logprob: Schema.Finite })
const Entry = Schema.Struct({
  ...Logprob.fields,
  top_logprobs: Schema.optionalKey(Schema.Array(Logprob))
})
const decodeEntry = Schema.decodeUnknownOption(Entry)

/** The legacy shape. Offsets count from the start of the answer, including an echoed prompt. */
const legacyLogprobs = (
  entries: ReadonlyArray<JsonObject>,
  from: number
): { readonly value: Json; readonly to: number } => {
  const decoded = entries.flatMap((entry) => Option.toArray(decodeEntry(entry)))
  let offset = from
  const offsets = decoded.map((entry) => {
    const at = offset
    offset += entry.token.length
    return at
  })
  return {
    to: offset,
    value: {
      tokens: decoded.map((entry) => entry.token),
      token_logprobs: decoded.map((entry) => entry.logprob),
      top_logprobs: decoded.map((entry) =>
        Object.fromEntries((entry.top_logprobs ?? []).map((top) => [top.token, top.logprob]))
      ),
      text_offset: offsets
    }
  }
}

/** The legacy shape has no field for reasoning, so it is left out, as Ollama does. */
export const completionEncoder = (model: string, echo: string | undefined, usageChunk = false): Encoder => {
  const id = openaiId("cmpl")
  let created: number | undefined
  let offset = (echo ?? "").length
  /** what is around the text of a frame with nothing else */
  let textEvent: readonly [before: string, after: string] | undefined
  let started = false

  const logprobsOf = (entries: ReadonlyArray<JsonObject>): Json => {
    const { to, value } = legacyLogprobs(entries, offset)
    offset = to
    return value
  }

  const objectOf = (
    frame: Frame,
    text: string,
    finish: string | null,
    logprobs: Json | undefined
  ): { [key: string]: Json } => {
    created ??= createdOf(frame)
    return {
      id,
      object: "text_completion",
      created,
      model,
      system_fingerprint: systemFingerprint,
      choices: [{ text, index: 0, logprobs: logprobs ?? null, finish_reason: finish }]
    }
  }

  const finishOf = (frame: Frame): string => (frame.doneReason === "length" ? "length" : "stop")

  /** The chunk of a frame with only text. Its parts are joined, which costs less than making an object. */
  const textChunk = (frame: Frame): string => {
    textEvent ??= around(
      objectOf(frame, "", null, undefined),
      ',"index":0,"logprobs":null,"finish_reason":null}]}\n\n'
    )
    return textEvent[0] + JSON.stringify(frame.text) + textEvent[1]
  }

  const chunkOf = (frame: Frame): string => {
    if (started && hasOnlyText(frame)) return frame.text === "" ? "" : textChunk(frame)
    const text = started ? frame.text : (echo ?? "") + frame.text
    started = true
    const logprobs = frame.logprobs === undefined ? undefined : logprobsOf(frame.logprobs)
    return text === "" && logprobs === undefined ? "" : event(objectOf(frame, text, null, logprobs))
  }

  const last = (frame: Frame): string =>
    ending(
      {
        id,
        object: "text_completion",
        created: created ?? createdOf(frame),
        model,
        system_fingerprint: systemFingerprint,
        choices: [{ text: "", index: 0, logprobs: null, finish_reason: finishOf(frame) }]
      },
      usageOf(frame),
      usageChunk
    )

  return {
    frames: (frames) =>
      joined(frames, (frame) => (frame.done ? chunkOf(frame) + last(frame) : chunkOf(frame))),
    failure: openaiFailure,
    object: (run) => ({
      ...objectOf(
        run,
        (echo ?? "") + run.text,
        finishOf(run),
        run.logprobs === undefined ? undefined : logprobsOf(run.logprobs)
      ),
      usage: usageOf(run)
    })
  }
}
