/**
 * The answers of `POST /v1/chat/completions` and `POST /v1/completions`: server-sent events, or one object (docs/protocol.md,
 * "OpenAI answers").
 */
import { randomUUID } from "node:crypto"
import { Option, Schema } from "effect"
import { type Frame, hasOnlyText, type ToolCall } from "../../../domain/Frame.ts"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import type { ErrorBody } from "../../../domain/Surface.ts"
import { errorBody as commonErrorBody } from "../../errors/errorResponses.ts"
import { type Encoder, joined } from "../Dialect.ts"
import { jsonText, present } from "../../../domain/json.ts"

const event = (data: Json): string => `data: ${jsonText(data)}\n\n`

const idOf = (prefix: string): string => `${prefix}-${randomUUID().replaceAll("-", "")}`

const usageOf = (frame: Frame): JsonObject => {
  const [input, output] = [frame.promptEvalCount ?? 0, frame.evalCount ?? 0]
  const cached = frame.promptEvalCachedCount
  return {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens: input + output,
    ...(cached === undefined ? {} : { prompt_tokens_details: { cached_tokens: cached } })
  }
}

/** Unix seconds by the backend's clock. An unreadable time becomes now. */
export const createdOf = (frame: Frame): number => {
  const at = Date.parse(frame.createdAt)
  return Math.floor((Number.isNaN(at) ? Date.now() : at) / 1000)
}

/** As Ollama: an answer with calls asks for their results, also when its text was cut after them. A call itself is never cut. */
const finishOf = (frame: Frame, calledTools = false): string =>
  calledTools ? "tool_calls" : frame.doneReason === "length" ? "length" : "stop"

/** A constant, because clients must not learn what is behind the gateway. */
export const systemFingerprint = "fp_tollgate"

/** What an endpoint writes of the frames of one answer, each as the one choice of a chunk. */
interface Choices {
  readonly idPrefix: string
  /** `object` of the answer, and of a chunk of its stream */
  readonly objects: { readonly whole: string; readonly chunk: string }
  /** what an answer without a stream has */
  readonly whole: (run: Frame) => JsonObject
  /** none for an empty frame, unless the first one has more than its text */
  readonly of: (frame: Frame, isFirst: boolean) => ReadonlyArray<JsonObject>
  /** that of an empty text and nothing else; `afterText` follows the text in its JSON */
  readonly text: JsonObject
  readonly afterText: string
  /** the last one, with the finish reason */
  readonly last: (frame: Frame) => JsonObject
}

/** How a client wants its answer. */
interface Wishes {
  /** usage in a chunk of its own, without choices; else it is in the last one */
  readonly usageChunk?: boolean | undefined
  readonly errorBody?: ErrorBody | undefined
}

const encoder = (
  model: string,
  choices: Choices,
  { errorBody = commonErrorBody, usageChunk = false }: Wishes
): Encoder => {
  const id = idOf(choices.idPrefix)
  let created: number | undefined
  /** what is around the text of a frame with nothing else */
  let textEvent: readonly [before: string, after: string] | undefined
  let started = false

  const objectOf = (object: string, frame: Frame, choice: JsonObject) => ({
    id,
    object,
    created: (created ??= createdOf(frame)),
    model,
    system_fingerprint: systemFingerprint,
    choices: [choice]
  })
  const chunkOf = (frame: Frame, choice: JsonObject) => objectOf(choices.objects.chunk, frame, choice)

  /** The chunk of a frame with only text. Its parts are joined, which costs less than making an object. */
  const textChunk = (frame: Frame): string => {
    if (frame.text === "") return ""
    if (textEvent === undefined) {
      const [whole, after] = [event(chunkOf(frame, choices.text)), `${choices.afterText}]}\n\n`]
      textEvent = [whole.slice(0, whole.length - after.length - '""'.length), after]
    }
    return textEvent[0] + jsonText(frame.text) + textEvent[1]
  }

  const chunksOf = (frame: Frame): string => {
    if (started && hasOnlyText(frame)) return textChunk(frame)
    const written = choices.of(frame, !started)
    started = true
    const chunks = written.map((choice) => event(chunkOf(frame, choice))).join("")
    if (!frame.done) return chunks
    const [last, usage] = [chunkOf(frame, choices.last(frame)), usageOf(frame)]
    const end = usageChunk ? event(last) + event({ ...last, choices: [], usage }) : event({ ...last, usage })
    return `${chunks}${end}data: [DONE]\n\n`
  }

  return {
    frames: (frames) => joined(frames, chunksOf),
    // No `[DONE]` follows, which would mean success.
    failure: (error, requestId) => event(errorBody(error, requestId)),
    // A comment: a chunk without text would be the first one of an answer that may still fail.
    waiting: () => ": waiting\n\n",
    object: (run) =>
      jsonText({ ...objectOf(choices.objects.whole, run, choices.whole(run)), usage: usageOf(run) })
  }
}

/** Every call gets an id. The backend's index is not used, because it is 0 for every call of many models. */
const toolCallsOf = (calls: ReadonlyArray<ToolCall>): ReadonlyArray<JsonObject> =>
  calls.map((call) => ({
    id: call.id ?? idOf("call"),
    type: "function",
    function: { name: call.name, arguments: jsonText(call.arguments) }
  }))

const chatLogprobs = ({ logprobs }: Frame): { readonly logprobs?: Json } =>
  logprobs === undefined
    ? {}
    : {
        logprobs: {
          content: logprobs.map((entry) => ({
            ...entry,
            bytes: entry["bytes"] ?? null,
            top_logprobs: entry["top_logprobs"] ?? []
          })),
          refusal: null
        }
      }

export const chatEncoder = (model: string, wishes: Wishes = {}): Encoder => {
  let calls = 0

  /** Reasoning comes first. An empty frame has nothing, unless it is the first one, which has the role. */
  const deltasOf = (
    frame: Frame,
    isFirst: boolean
  ): ReadonlyArray<{ readonly delta: JsonObject; readonly logprobs?: Json }> => {
    const { logprobs, text, thinking } = frame
    const reasoning = thinking === undefined ? [] : [{ delta: { reasoning: thinking } }]
    const toolCalls = toolCallsOf(frame.toolCalls ?? []).map((call) => ({ index: calls++, ...call }))
    if (toolCalls.length > 0)
      return [
        ...reasoning,
        {
          delta: { ...(text === "" ? {} : { content: text }), tool_calls: toolCalls },
          ...chatLogprobs(frame)
        }
      ]
    return text !== "" || logprobs !== undefined || (isFirst && reasoning.length === 0)
      ? [...reasoning, { delta: { content: text }, ...chatLogprobs(frame) }]
      : reasoning
  }

  const choices: Choices = {
    idPrefix: "chatcmpl",
    objects: { whole: "chat.completion", chunk: "chat.completion.chunk" },
    whole: (run) => ({
      index: 0,
      message: {
        role: "assistant",
        content: run.text === "" && run.toolCalls !== undefined ? null : run.text,
        ...present({ reasoning: run.thinking, tool_calls: run.toolCalls && toolCallsOf(run.toolCalls) })
      },
      ...chatLogprobs(run),
      finish_reason: finishOf(run, run.toolCalls !== undefined)
    }),
    of: (frame, isFirst) =>
      deltasOf(frame, isFirst).map(({ delta, ...more }, i) => ({
        index: 0,
        delta: isFirst && i === 0 ? { role: "assistant", ...delta } : delta,
        finish_reason: null,
        ...more
      })),
    text: { index: 0, delta: { content: "" }, finish_reason: null },
    afterText: '},"finish_reason":null}',
    last: (frame) => ({ index: 0, delta: {}, finish_reason: finishOf(frame, calls > 0) })
  }
  return encoder(model, choices, wishes)
}

const Logprob = Schema.Struct({ token: Schema.String, logprob: Schema.Finite })
const decodeEntry = Schema.decodeUnknownOption(
  Schema.Struct({ ...Logprob.fields, top_logprobs: Schema.optionalKey(Schema.Array(Logprob)) })
)

/** The legacy shape has no field for reasoning, so it is left out, as Ollama does. `echo` is before the answer. */
export const completionEncoder = (model: string, echo = "", wishes: Wishes = {}): Encoder => {
  /** of the next token, from the start of the answer, including an echoed prompt */
  let offset = echo.length

  const logprobsOf = ({ logprobs }: Frame): Json => {
    if (logprobs === undefined) return null
    const entries = logprobs.flatMap((entry) => Option.toArray(decodeEntry(entry)))
    return {
      tokens: entries.map(({ token }) => token),
      token_logprobs: entries.map(({ logprob }) => logprob),
      top_logprobs: entries.map(({ top_logprobs: top = [] }) =>
        Object.fromEntries(top.map(({ logprob, token }) => [token, logprob]))
      ),
      text_offset: entries.map(({ token }) => (offset += token.length) - token.length)
    }
  }
  const choiceOf = (text: string, finish: string | null, logprobs: Json = null): JsonObject => ({
    text,
    index: 0,
    logprobs,
    finish_reason: finish
  })

  const choices: Choices = {
    idPrefix: "cmpl",
    objects: { whole: "text_completion", chunk: "text_completion" },
    whole: (run) => choiceOf(echo + run.text, finishOf(run), logprobsOf(run)),
    of: (frame, isFirst) => {
      const [text, logprobs] = [isFirst ? echo + frame.text : frame.text, logprobsOf(frame)]
      return text === "" && logprobs === null ? [] : [choiceOf(text, null, logprobs)]
    },
    text: choiceOf("", null),
    afterText: ',"index":0,"logprobs":null,"finish_reason":null}',
    last: (frame) => choiceOf("", finishOf(frame))
  }
  return encoder(model, choices, wishes)
}
