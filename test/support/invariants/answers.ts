/** What holds of every answer alone: it has its id, and an error has the contract's shape with nothing of ours in it. */
import { Option, Schema } from "effect"
import { leaksIn, type Private, privateIn } from "./leaks.ts"
import type { Answer } from "./Witness.ts"

const Refusal = Schema.fromJsonString(
  Schema.Struct({
    type: Schema.optionalKey(Schema.Literal("error")),
    // A text, or a code as text, with ERROR_BODIES=clients.
    error: Schema.Union([
      Schema.NonEmptyString,
      Schema.Struct({
        message: Schema.String,
        type: Schema.String,
        code: Schema.Union([Schema.Finite, Schema.FiniteFromString])
      })
    ]),
    request_id: Schema.String
  })
)
const decodeRefusal = Schema.decodeUnknownOption(Refusal, { onExcessProperty: "error" })

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/

export const idOf = ({ headers }: Answer): string => headers.get("x-request-id") ?? ""

const nameOf = ({ status, request }: Answer): string =>
  `${request === undefined ? "an answer" : `${request.method} ${request.target.slice(0, 60)}`}, ${status}`

const refusalProblems = (answer: Answer): ReadonlyArray<string> => {
  if (answer.bodiless) return []
  const refusal = decodeRefusal(answer.body)
  if (Option.isNone(refusal)) return [`not an error's shape: ${answer.body.slice(0, 200)}`]
  const { error, request_id } = refusal.value
  return [
    ...(typeof error === "string" || error.code === answer.status ? [] : [`code ${error.code} in its body`]),
    ...(request_id === idOf(answer) ? [] : ["another id in its body"]),
    ...((answer.headers.get("content-type") ?? "").startsWith("application/json") ? [] : ["not JSON"])
  ]
}

/** What is wrong with the answer, in words. */
export const answerProblems = (answer: Answer, known: Private): ReadonlyArray<string> => {
  // An answer's words are the model's; a refusal's are ours.
  const leaks = answer.status >= 400 ? leaksIn(answer.body, known) : privateIn(answer.body, known)
  return [
    ...(uuid.test(idOf(answer)) ? [] : ["no X-Request-ID"]),
    ...(answer.status >= 400 ? refusalProblems(answer) : []),
    ...leaks.map((leak) => `${leak} in its body`)
  ].map((problem) => `${nameOf(answer)}: ${problem}`)
}

/** Answered by the process itself, without a row. */
const unaudited = /^\/(?:healthz|readyz|metrics|playground|api\/hello)(?:\?|$)/
/** May come from Node's parser, before there is a request that could be audited. */
const parsers = new Set([400, 408, 413, 417, 431])

/** Whether the answer's request has a row in the audit log; undefined: it may have one. */
export const wantsRow = ({ request, status }: Answer): boolean | undefined => {
  if (request === undefined) return undefined
  // Refused there, it was a blocked path like any other.
  if (unaudited.test(request.target)) return status < 400 || status === 503 ? false : undefined
  const early = request.raw && (parsers.has(status) || request.method === "CONNECT")
  return early ? undefined : true
}
