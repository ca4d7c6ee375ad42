/**
 * Checks that a Redis server is suitable. A server that evicts keys would forget what was spent and which requests
 * run. A server before 7.0 does not know the flags of our scripts. With either, no request is admitted.
 */
import { Effect } from "effect"
import { OutageLog } from "../../../infra/OutageLog.ts"
import type { Redis, RedisInfo } from "../../../infra/Redis.ts"
import { MeterDown } from "../Meter.ts"

const oldest = 7

/** Why limits cannot be kept on this server; undefined when they can. */
export const faultOf = ({ evictionPolicy, version }: RedisInfo): string | undefined => {
  if (!(Number.parseInt(version, 10) >= oldest))
    return `Redis is version ${version || "unknown"}; 7.0 is the oldest that will do`
  if (evictionPolicy !== "noeviction") {
    return `Redis has maxmemory-policy ${evictionPolicy || "unknown"}; limits need noeviction`
  }
  return undefined
}

const remindMs = 10_000

/**
 * Runs commands only when all servers are suitable; otherwise fails with the first fault, and logs it every ten
 * seconds while it lasts. It takes one step while the servers are known and suitable, because every request waits for it.
 */
export const checkRequirements = (
  { knownServers, servers }: Pick<Redis["Service"], "knownServers" | "servers">,
  nowMs: () => number
) => {
  const log = new OutageLog(nowMs, { remindMs })
  /** The last facts that were found suitable; the same object until the servers are read again. */
  let good: ReadonlyArray<RedisInfo> | undefined
  const refuse = Effect.fnUntraced(function* (cause: string) {
    yield* log.failed(() => Effect.logError("refusing all requests, Redis is not usable", cause))
    return yield* new MeterDown({ cause })
  })
  const check = <A>(ask: () => Effect.Effect<A, MeterDown>): Effect.Effect<A, MeterDown> =>
    Effect.matchEffect(servers, {
      onFailure: ({ cause }) => Effect.fail(new MeterDown({ cause })),
      onSuccess: (found) => {
        if (found.length === 0) return refuse("no Redis to ask")
        const fault = found.map(faultOf).find((fault) => fault !== undefined)
        if (fault !== undefined) return refuse(fault)
        good = found
        return ask()
      }
    })
  return <A>(ask: () => Effect.Effect<A, MeterDown>): Effect.Effect<A, MeterDown> =>
    Effect.suspend(() => (good !== undefined && knownServers() === good ? ask() : check(ask)))
}
