/** One request of a soak, its answer read to the end or left in the middle. */
import type { Dispatcher } from "undici"
import { Effect } from "effect"
import { poolOf } from "../scale/Load.ts"
import type { Answer } from "../../test/support/invariants/Witness.ts"
import type { Kind, Observed, Outcome } from "./Observed.ts"

export interface Call {
  readonly kind: Kind
  /** its name and secret; the name begins the prompt, where the backend finds it */
  readonly key: { readonly name: string; readonly secret: string }
  readonly path: Path
  readonly model: string
  readonly stream: boolean
  /** gone after the first bytes of the answer */
  readonly leaves: boolean
}

let serial = 0

/** What each endpoint takes. */
export const shapes = {
  "/api/chat": "messages",
  "/v1/chat/completions": "messages",
  "/api/generate": "prompt",
  "/v1/completions": "prompt",
  "/api/embed": "input",
  "/v1/embeddings": "input",
  "/api/pull": "input",
  "/api/tags": "list",
  "/v1/models": "list",
  "/api/version": "list"
} as const
export type Path = keyof typeof shapes

const bodyOf = ({ key, model, path, stream }: Call, number: number): object => {
  const text = `${key.name}#${number}#Hello`
  switch (shapes[path]) {
    case "messages":
      return { model, stream, messages: [{ role: "user", content: text }] }
    case "prompt":
      return { model, stream, prompt: text }
    default:
      return { model, input: text }
  }
}

/** A stream says when it is whole; anything else is one object. */
const endOf = (stream: boolean, text: string): Outcome["end"] => {
  const last = text.trimEnd().split("\n").at(-1) ?? ""
  if (stream && (last === "data: [DONE]" || last.includes('"done":true'))) return "whole"
  if (/"error":[{"]/.test(last)) return "error"
  return !stream && last.endsWith("}") ? "whole" : "cut"
}

/** Aborting the body is how an undici client leaves. */
const readFirst = async (body: Dispatcher.ResponseData["body"]): Promise<string> => {
  for await (const chunk of body) return String(chunk)
  return ""
}

/** Never fails: what went wrong is in the outcome, and the outcome is judged by `observed`. */
export const ask = (
  observed: Observed,
  replicas: readonly [{ readonly url: string }, { readonly url: string }],
  at: 0 | 1,
  call: Call
): Effect.Effect<Outcome> =>
  Effect.promise(async () => {
    const number = ++serial
    const method = shapes[call.path] === "list" ? "GET" : "POST"
    const began = performance.now()
    let answer: Answer | undefined
    let end: Outcome["end"] = "cut"
    try {
      const { body, headers, statusCode } = await poolOf(replicas[at].url).request({
        method,
        path: call.path,
        headers: {
          authorization: `Bearer ${call.key.secret}`,
          "x-request-id": String(number),
          ...(method === "POST" ? { "content-type": "application/json" } : {})
        },
        ...(method === "POST"
          ? { body: call.kind === "bad body" ? "{" : JSON.stringify(bodyOf(call, number)) }
          : {})
      })
      const heard = (text: string): Answer => ({
        status: statusCode,
        headers: { get: (name) => [headers[name]].flat()[0] },
        body: text,
        bodiless: false,
        request: { method, target: call.path, raw: false }
      })
      // It has an id whatever becomes of it, and so it has a row.
      answer = heard("")
      if (call.leaves && statusCode === 200) {
        end = "left"
        await readFirst(body)
      } else {
        const text = await body.text()
        answer = heard(text)
        end = statusCode === 200 ? endOf(call.stream, text) : "whole"
      }
    } catch {
      // A connection that was cut: whether it may have been is judged below.
      if (answer !== undefined && answer.status !== 200) answer = undefined
    }
    const status = answer?.status ?? 0
    const outcome: Outcome = {
      kind: call.kind,
      key: call.key.name,
      replica: at,
      status,
      type: status === 0 ? "lost" : (/"type":"(\w+)"/.exec(answer?.body ?? "")?.[1] ?? ""),
      end,
      began,
      ended: performance.now()
    }
    observed.add(outcome, answer)
    return outcome
  })
