/**
 * Posts JSON to `ALERT_WEBHOOK_URL`, signed with `ALERT_WEBHOOK_SECRET`. The URL is a secret: what is told of a POST has nothing of it, and
 * nothing of the answer but its status, because receivers repeat the path. Redirects are not followed.
 */
import { createHmac } from "node:crypto"
import { Clock, Effect, Redacted } from "effect"
import { innermost } from "../infra/errorCode.ts"

export interface Webhook {
  readonly url: Redacted.Redacted
  /** undefined: messages are not signed */
  readonly secret: Redacted.Redacted | undefined
}

export interface Delivery {
  /** `failed`: the same POST may be delivered later */
  readonly outcome: "delivered" | "failed" | "refused"
  /** what the receiver did: "answered 404" */
  readonly what: string
}

const outcomeOf = (status: number) =>
  status >= 200 && status < 300 ? "delivered" : status >= 500 || status === 429 ? "failed" : "refused"

const silenceOf = (error: { readonly _tag: string }): string =>
  error._tag === "TimeoutError"
    ? "did not answer within ten seconds"
    : `cannot be reached (${innermost(error)?.code || "no code"})`

/** The time is signed too, so that a receiver can refuse a message that somebody has kept. */
const signatureOf = (secret: Redacted.Redacted, at: number, body: string): string =>
  `t=${at},v1=${createHmac("sha256", Redacted.value(secret)).update(`${at}.${body}`).digest("hex")}`

export const post = ({ secret, url }: Webhook, message: object): Effect.Effect<Delivery> =>
  Effect.gen(function* () {
    const body = JSON.stringify(message)
    const at = Math.floor((yield* Clock.currentTimeMillis) / 1000)
    const signature = secret === undefined ? {} : { "x-tollgate-signature": signatureOf(secret, at, body) }
    const headers = { "content-type": "application/json", ...signature }
    const status = yield* Effect.tryPromise(async (signal) => {
      const request = { method: "POST", headers, body, signal, redirect: "manual" } as const
      const response = await fetch(Redacted.value(url), request)
      await response.body?.cancel()
      return response.status
    })
    return { outcome: outcomeOf(status), what: `answered ${status}` } as const
  }).pipe(
    Effect.timeout("10 seconds"),
    Effect.catch((error) => Effect.succeed({ outcome: "failed", what: silenceOf(error) } as const))
  )
