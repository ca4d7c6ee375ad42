/**
 * How long a request waits for an answer of Postgres or Redis, in milliseconds. They are not settings; tests that are not
 * about an outage use longer ones, so that a busy machine is none.
 */
import { Context } from "effect"

export interface StoreTimeoutsMs {
  /** for a command to Redis */
  readonly command: number
  /** for the state of a key */
  readonly keyRead: number
  /** for the row of an intent */
  readonly open: number
  /** for the row of a refusal */
  readonly refuse: number
}

/**
 * A frozen database must become a 503 within about a second. The wait for the intent comes first, then the wait for the
 * refusal's own row, so the sum of both must stay below a second.
 */
export const StoreTimeouts = Context.Reference<StoreTimeoutsMs>("tollgate/infra/StoreTimeouts", {
  defaultValue: () => ({ command: 400, keyRead: 500, open: 700, refuse: 250 })
})
