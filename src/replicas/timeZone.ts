/**
 * The time zone of a database: its gateways count days in one, and commands read it here. A gateway takes its own `TIMEZONE` when no
 * other gateway runs. The zone may change, because each row of the books has the day that it counts to.
 */
import { Data, Effect, Schedule, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { oneRow } from "../infra/rows.ts"
import { timeoutDetached } from "../infra/time.ts"
import { goneAfterS, reportEveryS } from "./Replicas.ts"

const zoneOf = oneRow({ zone: Schema.String })

export const readTimeZone = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(zoneOf(sql`SELECT zone FROM time_zone`), ({ zone }) => zone)
)

export class OtherTimeZone extends Data.TaggedError("OtherTimeZone")<{
  readonly zone: string
  readonly others: string
}> {
  override get message(): string {
    return `TIMEZONE is ${this.zone} here and ${this.others} for the gateways that use this database: all have the same; to change it, stop all of them (one that was killed counts for ${goneAfterS} seconds)`
  }
}

const requireZone = (zone: string) =>
  Effect.flatMap(readTimeZone, (others) =>
    others === zone ? Effect.void : Effect.fail(new OtherTimeZone({ zone, others }))
  )

/** Takes the zone, or fails when other gateways have another one. */
export const takeTimeZone = (zone: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    timeoutDetached("5 seconds")(
      Effect.andThen(
        sql`UPDATE time_zone SET zone = ${zone} WHERE zone <> ${zone}
          AND NOT EXISTS (SELECT FROM replicas WHERE seen_at > now() - make_interval(secs => ${goneAfterS}))`,
        requireZone(zone)
      )
    )
  )

/** Fails when the zone is not this one any more: two gateways started at once, or this one was paused. */
export const watchTimeZone = (zone: string) =>
  requireZone(zone).pipe(
    // Readiness tells of a store that cannot be asked.
    Effect.catchIf(
      (error) => error._tag !== "OtherTimeZone",
      () => Effect.void
    ),
    Effect.repeat(Schedule.spaced(`${reportEveryS} seconds`)),
    Effect.andThen(Effect.never)
  )
