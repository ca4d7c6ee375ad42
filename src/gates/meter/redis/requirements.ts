/**
 * Checks that a Redis server is suitable. A server that evicts keys would forget what was spent and which requests
 * run. A server before 7.0 does not know the flags of our scripts. A node of a Redis Cluster has only a part of the keys. With any of
 * them, no request is admitted.
 */
import { Effect } from "effect"
import { OutageLog } from "../../../infra/OutageLog.ts"
import type { Redis, RedisInfo } from "../../../infra/Redis.ts"
import { MeterDown } from "../Meter.ts"

const oldest = 7

/** Why limits cannot be kept on this server; undefined when they can. */
export const faultOf = ({ evictionPolicy, isClustered, version }: RedisInfo): string | undefined => {
  if (!(Number.parseInt(version, 10) >= oldest))
    return `Redis is version ${version || "unknown"}; 7.0 is the oldest that will do`
  if (isClustered) return "Redis is a node of a Redis Cluster; limits need one server that is none"
  if (evictionPolicy !== "noeviction") {
    return `Redis has maxmemory-policy ${evictionPolicy || "unknown"}; limits need noeviction`
  }
  return undefined
}

/** A server that is full, or a replica, answers a PING and refuses what limits need. */
export const probeWrites = ({ send }: Pick<Redis["Service"], "send">, prefix = "tollgate:") =>
  send("SET", [`${prefix}probe`, 1, "EX", 1])

/** Checks that the server is suitable. Otherwise it fails with the fault, and logs it every ten seconds. */
export const checkRequirements = (nowMs: () => number) => {
  const log = new OutageLog(nowMs, { remindMs: 10_000 })
  return (server: Redis["Service"]["server"]): Effect.Effect<void, MeterDown> =>
    Effect.matchEffect(server, {
      onFailure: ({ cause }) => new MeterDown({ cause }),
      onSuccess: (found) => {
        const fault = faultOf(found)
        if (fault === undefined) return Effect.void
        const warn = log.failed(() => Effect.logError("refusing all requests, Redis is not usable", fault))
        return Effect.andThen(warn, new MeterDown({ cause: fault }))
      }
    })
}
