/**
 * Whether a Redis can be trusted with limits. One that evicts would forget who has spent what, or who is under way, and
 * that is a limit nobody has to keep; one before 7.0 does not know the scripts' flags. Nobody is admitted on either.
 */
import { Effect } from "effect"
import { OutageLog } from "../../../infra/OutageLog.ts"
import type { RedisFailed, RedisInfo } from "../../../infra/Redis.ts"
import { MeterDown } from "../Meter.ts"

const oldest = 7

const faultOf = ({ evictionPolicy, version }: RedisInfo): string | undefined => {
  if (!(Number.parseInt(version, 10) >= oldest))
    return `Redis is version ${version || "unknown"}; 7.0 is the oldest that will do`
  if (evictionPolicy !== "noeviction") {
    return `Redis has maxmemory-policy ${evictionPolicy || "unknown"}; limits need noeviction`
  }
  return undefined
}

const remindMs = 10_000

/**
 * Lets through what is asked of servers that are all fit; else fails with the fault of the first that has one, which is in
 * the log every ten seconds for as long as it lasts.
 */
export const checkRequirements = (
  servers: Effect.Effect<ReadonlyArray<RedisInfo>, RedisFailed>,
  nowMs: () => number
) => {
  const log = new OutageLog(nowMs, { remindMs })
  /** What was said last and found good; it is the same until the servers are asked anew. */
  let good: ReadonlyArray<RedisInfo> | undefined
  const refuse = Effect.fnUntraced(function* (cause: string) {
    yield* log.failed(() => Effect.logError("refusing all requests, Redis is not usable", cause))
    return yield* new MeterDown({ cause })
  })
  return <A>(ask: Effect.Effect<A, MeterDown>): Effect.Effect<A, MeterDown> =>
    Effect.matchEffect(servers, {
      onFailure: ({ cause }) => Effect.fail(new MeterDown({ cause })),
      onSuccess: (found) => {
        if (found === good) return ask
        if (found.length === 0) return refuse("no Redis to ask")
        const fault = found.map(faultOf).find((fault) => fault !== undefined)
        if (fault !== undefined) return refuse(fault)
        good = found
        return ask
      }
    })
}
