/**
 * Decodes one line of the backend to a `Frame`, with hand-written guards. It runs for every token, and a Schema of the
 * same shape costs several times as much (bench/RESULTS.md).
 *
 * It never throws. It copies known fields only, so `remote_host`, `_debug_info` and fields of later versions do not reach
 * the client. Counts are read from the final frame only (docs/protocol.md, "Chat").
 */
import { countsIn, type Frame, type ToolCall } from "../../domain/Frame.ts"
import type { Json, JsonObject } from "../../domain/Inference.ts"
import { answerDepth, isArray, isCount, isDeeperThan, isObject, tryParseJson } from "../../domain/json.ts"

/** The endpoints that answer with frames. */
export type FrameKind = "chat" | "generate"

/** A line `{"error": …}` instead of a frame. Its text goes to the log, never to a client. */
export class ErrorLine {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

/** A line that is not a frame. `why` names the field, never its value. */
export class Malformed {
  readonly why: string
  constructor(why: string) {
    this.why = why
  }
}

export type Line = Frame | ErrorLine | Malformed

export const isFrame = (line: Line): line is Frame =>
  !(line instanceof ErrorLine) && !(line instanceof Malformed)

type Draft = { -readonly [K in keyof Frame]: Frame[K] }

export const decodeFrame = (kind: FrameKind, line: string): Line => {
  const value = tryParseJson(line)
  if (!isObject(value)) return new Malformed("not a JSON object")
  if (value.error !== undefined && value.error !== null && value.error !== "") {
    return new ErrorLine(typeof value.error === "string" ? value.error : textOf(value.error))
  }
  if (typeof value.done !== "boolean") return new Malformed("done")
  const output = kind === "chat" ? (value.message ?? nothing) : value
  if (!isObject(output)) return new Malformed("message")
  const text = (kind === "chat" ? output.content : output.response) ?? ""
  if (typeof text !== "string") return new Malformed("text")

  const frame: Draft = { createdAt: timeOf(value.created_at), text, done: value.done }
  const thinking = output.thinking ?? ""
  if (typeof thinking !== "string") return new Malformed("thinking")
  if (thinking !== "") frame.thinking = thinking
  if (output.tool_calls !== undefined && output.tool_calls !== null) {
    const calls = toolCallsOf(output.tool_calls)
    if (calls === undefined) return new Malformed("tool_calls")
    if (calls.length > 0) frame.toolCalls = calls
  }
  if (value.logprobs !== undefined && value.logprobs !== null) {
    if (!isArray(value.logprobs)) return new Malformed("logprobs")
    frame.logprobs = value.logprobs.filter(isObject).map(logprobOf)
  }
  if (value.done) addTotals(kind, frame, value)
  return frame
}

/** Adds the fields that only the final frame has. */
const addTotals = (kind: FrameKind, frame: Draft, value: JsonObject): void => {
  const reason = value.done_reason
  if (typeof reason === "string" && reason.length > 0 && reason.length <= 32) frame.doneReason = reason
  Object.assign(frame, countsIn(value))
  if (kind === "generate" && isArray(value.context) && value.context.every(isCount))
    frame.context = value.context
}

const textOf = (value: Json): string =>
  isDeeperThan(value, answerDepth) ? "an error with too many levels" : JSON.stringify(value)

const toolCallsOf = (value: Json): ReadonlyArray<ToolCall> | undefined => {
  if (!isArray(value)) return undefined
  const calls: Array<ToolCall> = []
  for (const call of value) {
    if (!isObject(call) || !isObject(call.function)) return undefined
    const { name, arguments: given } = call.function
    const args = given ?? nothing
    if (typeof name !== "string" || !isObject(args) || isDeeperThan(args, answerDepth)) return undefined
    // `index` is not read: for many models it is always 0.
    calls.push(
      typeof call.id === "string" && call.id !== ""
        ? { id: call.id, name, arguments: args }
        : { name, arguments: args }
    )
  }
  return calls
}

const logprobOf = (value: JsonObject): JsonObject => {
  const top = value.top_logprobs
  const one = tokenLogprobOf(value)
  return top !== undefined && isArray(top)
    ? { ...one, top_logprobs: top.filter(isObject).map(tokenLogprobOf) }
    : one
}

const tokenLogprobOf = (value: JsonObject): JsonObject => ({
  token: typeof value.token === "string" ? value.token : "",
  logprob: typeof value.logprob === "number" ? value.logprob : 0,
  ...(isArray(value.bytes) && value.bytes.every(isCount) ? { bytes: value.bytes } : {})
})

const nothing: JsonObject = {}
export const epoch = "1970-01-01T00:00:00Z"

/** Clients parse this field, so a text that cannot be a time is replaced. */
const timeOf = (value: Json | undefined): string =>
  typeof value === "string" && value.length >= 20 && value.length <= 40 ? value : epoch
