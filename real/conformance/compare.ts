/**
 * What the server said and what the gateway said, without what always differs: times, durations and ids. The
 * differences the guide lists as deliberate are taken out here too, each in one place and by its name.
 */
import { isDeepStrictEqual } from "node:util"
import type { Json, JsonObject } from "../../src/domain/Inference.ts"

export interface Said {
  readonly status: number
  readonly contentType: string
  readonly text: string
}

export interface Counts {
  readonly input: number
  readonly output: number
}

export type Verdict =
  | { readonly as: "equal" }
  | { readonly as: "deliberate"; readonly why: string }
  | { readonly as: "different"; readonly server: Json; readonly gateway: Json }

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const objectOf = (value: Json | undefined): JsonObject => (isObject(value) ? value : {})
const listOf = (value: Json | undefined): ReadonlyArray<Json> => (Array.isArray(value) ? value : [])
const countOf = (value: Json | undefined): number => (typeof value === "number" ? value : 0)

/** NDJSON, server-sent events or one object, as objects. */
export const framesOf = ({ contentType, text }: Said): ReadonlyArray<JsonObject> => {
  const parsed = (line: string): JsonObject => {
    const value: Json = JSON.parse(line)
    return objectOf(value)
  }
  if (contentType.startsWith("text/event-stream")) {
    return text
      .split("\n\n")
      .filter((event) => event !== "" && event !== "data: [DONE]")
      .map((event) => parsed(event.slice("data: ".length)))
  }
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map(parsed)
}

/** The second of two equal prompts is in the server's cache. */
const timing = /_duration$|_cached_count$|^created_at$|^created$|^id$|^system_fingerprint$/

/** A duration says only whether it is there; the gateway always numbers tool calls, the server only from 1 on. */
const nativeFrame = (frame: JsonObject): JsonObject => {
  const message = objectOf(frame["message"])
  const calls = listOf(message["tool_calls"]).map((call) => {
    const { index: _index, ...named } = objectOf(objectOf(call)["function"])
    return named
  })
  return {
    ...Object.fromEntries(
      Object.entries(frame).map(([key, value]) => [key, timing.test(key) ? "there" : value])
    ),
    ...(frame["message"] === undefined
      ? {}
      : { message: { ...message, ...(calls.length > 0 ? { tool_calls: calls } : {}) } }),
    // The gateway's context is sealed.
    ...(frame["context"] === undefined ? {} : { context: "there" })
  }
}

/** What a stream of the OpenAI surface says, whichever chunk says it; role, finish and usage sit in different ones. */
const openaiStream = (chunks: ReadonlyArray<JsonObject>): JsonObject => {
  const choices = chunks.flatMap((chunk) => listOf(chunk["choices"]).map(objectOf))
  const usage = chunks.map((chunk) => chunk["usage"]).findLast(isObject)
  return {
    said: choices.flatMap((choice) => {
      const delta = objectOf(choice["delta"])
      const said = {
        text: choice["text"] ?? delta["content"] ?? "",
        reasoning: delta["reasoning"] ?? "",
        calls: callsOf(delta)
      }
      return said.text === "" && said.reasoning === "" && said.calls.length === 0 ? [] : [said]
    }),
    finish:
      choices.map((choice) => choice["finish_reason"]).findLast((reason) => typeof reason === "string") ??
      null,
    usage: countedBy(usage)
  }
}

/** Without what was in the server's cache. */
const countedBy = (usage: Json | undefined): Json => {
  const { prompt_tokens_details: _cached, ...counts } = objectOf(usage)
  return counts
}

const callsOf = (message: JsonObject): ReadonlyArray<Json> =>
  listOf(message["tool_calls"]).map((call) => {
    const { arguments: text, name } = objectOf(objectOf(call)["function"])
    const args: Json = typeof text === "string" ? JSON.parse(text) : null
    return { name: name ?? null, arguments: args }
  })

const openaiWhole = (answer: JsonObject): JsonObject => ({
  object: answer["object"] ?? null,
  model: answer["model"] ?? null,
  data: answer["data"] ?? null,
  choices: listOf(answer["choices"]).map((choice) => {
    const { finish_reason, index, message, text } = objectOf(choice)
    const said = objectOf(message)
    return {
      index: index ?? null,
      finish_reason: finish_reason ?? null,
      text: text ?? said["content"] ?? "",
      reasoning: said["reasoning"] ?? "",
      calls: callsOf(said)
    }
  }),
  usage: countedBy(answer["usage"])
})

const plain = (path: string, said: Said): Json => {
  const frames = framesOf(said)
  if (path.startsWith("/api/")) return frames.map(nativeFrame)
  return said.contentType.startsWith("text/event-stream")
    ? openaiStream(frames)
    : openaiWhole(frames[0] ?? {})
}

/** What the server's own counters say it used; undefined where it reports none. */
export const countsOf = (path: string, said: Said): Counts | undefined => {
  const frames = framesOf(said)
  if (path.startsWith("/api/")) {
    const last = frames.at(-1)
    if (last === undefined || (last["done"] !== true && last["embeddings"] === undefined)) return undefined
    return { input: countOf(last["prompt_eval_count"]), output: countOf(last["eval_count"]) }
  }
  const usage = frames.map((frame) => frame["usage"]).findLast(isObject)
  return usage === undefined || !hasEnd(path, said)
    ? undefined
    : { input: countOf(usage["prompt_tokens"]), output: countOf(usage["completion_tokens"]) }
}

/** Statuses that mean the same: what is not installed is forbidden, and no 500 that the request caused is passed on. */
const refusals: Readonly<Record<number, ReadonlyArray<number>>> = { 400: [400], 404: [403], 500: [400] }

/** Whether the answer has an end: on the native surface `done`, on the other one a finish reason. */
const hasEnd = (path: string, said: Said): boolean => {
  const frames = framesOf(said)
  if (path.includes("embed")) return true
  if (path.startsWith("/api/")) return frames.at(-1)?.["done"] === true
  return finishOf(plain(path, said)) !== null
}

/** What an answer says, without its last frame: the server gave up before it. */
const withoutEnd = (answer: Json): Json =>
  Array.isArray(answer)
    ? answer
        .map(objectOf)
        .filter((frame) => frame["done"] !== true)
        .map((frame) => frame["message"] ?? frame["response"] ?? null)
    : { ...objectOf(answer), finish: null, usage: null }

/** Whether the gateway ended as `length` what the server did not end. An answer in one object has no last frame. */
const isCompleted = (theirs: Json, ours: Json): boolean => {
  const last = objectOf(listOf(ours).at(-1))
  const ends = last["done"] === true ? last["done_reason"] === "length" : finishOf(ours) === "length"
  const whole = listOf(ours).length === 1 || objectOf(ours)["choices"] !== undefined
  return ends && (whole || isDeepStrictEqual(withoutEnd(theirs), withoutEnd(ours)))
}

const finishOf = (answer: Json): Json =>
  objectOf(answer)["finish"] ?? objectOf(listOf(objectOf(answer)["choices"])[0])["finish_reason"] ?? null

const cutAfterCall = (answer: Json): boolean =>
  finishOf(answer) === "length" && JSON.stringify(answer).includes('"calls":[{')

const withoutFinish = (answer: Json): Json =>
  JSON.parse(JSON.stringify(answer).replace(/"(finish|finish_reason)":"\w+"/g, '"$1":""'))

/** Some refusals of the server come as the only line of a stream that began with 200. */
const refusesInStream = (said: Said): boolean => typeof framesOf(said)[0]?.["error"] === "string"

export const compare = (path: string, server: Said, gateway: Said): Verdict => {
  if (server.status === 200 && gateway.status === 400 && refusesInStream(server)) return { as: "equal" }
  if (server.status >= 400 || gateway.status >= 400) {
    return refusals[server.status]?.includes(gateway.status) === true
      ? { as: "equal" }
      : { as: "different", server: [server.status, server.text], gateway: [gateway.status, gateway.text] }
  }
  const [theirs, ours] = [plain(path, server), plain(path, gateway)]
  const different: Verdict = { as: "different", server: theirs, gateway: ours }
  if (server.contentType.split(";")[0] !== gateway.contentType.split(";")[0])
    return { ...different, server: server.contentType, gateway: gateway.contentType }
  if (!hasEnd(path, server)) {
    return isCompleted(theirs, ours)
      ? { as: "deliberate", why: "the server ended without a last frame, the gateway with `length`" }
      : different
  }
  if (isDeepStrictEqual(theirs, ours)) return { as: "equal" }
  return (cutAfterCall(ours) || cutAfterCall(theirs)) &&
    isDeepStrictEqual(withoutFinish(theirs), withoutFinish(ours))
    ? {
        as: "deliberate",
        why: "cut by its bound after a tool call: one says `tool_calls`, the other `length`"
      }
    : different
}
