import { Console, Effect, Option, Schedule } from "effect"
import { Command, Flag } from "effect/cli"
import { InvalidValue, RegistryDown } from "../../src/admin/Errors.ts"
import { maxScanned, type RequestFilter, Records, type RequestRow } from "../../src/admin/records/Records.ts"
import type { Listed } from "../../src/infra/rows.ts"
import { errorMessages } from "../errorMessages.ts"
import { nameUnreadable, printErrors, showListed } from "../exit.ts"
import * as flags from "../flags.ts"
import { readLifetime } from "../lifetime.ts"
import { requestLine, requestTable } from "../requestLines.ts"
import { amount, Json, note, noteAsText, toJsonLine } from "../terminal.ts"

/** `429`, or `4xx` for a class. */
const readStatus = (text: string): Effect.Effect<readonly [number, number], InvalidValue> => {
  const [, hundred] = /^([1-5])xx$/i.exec(text) ?? []
  if (hundred !== undefined) return Effect.succeed([Number(hundred) * 100, Number(hundred) * 100 + 99])
  return /^[1-5]\d\d$/.test(text)
    ? Effect.succeed([Number(text), Number(text)])
    : Effect.fail(
        new InvalidValue({ field: "status", expected: "a status such as 429, or a class such as 5xx" })
      )
}

/**
 * A row is visible some time after the database's clock has stamped it: when its transaction commits. A gateway's longest
 * transaction has two statements of 2 seconds, and the database ends it when it pauses for 30 seconds, so what is younger
 * than this is read again.
 */
const overlapMs = 90_000

/**
 * Returns the rows that no earlier call returned. The first call returns nothing: it marks what is there. It remembers the
 * ids of the last `overlapMs`.
 */
export const makeFollower = Effect.fnUntraced(function* (filter: RequestFilter) {
  const records = yield* Records
  let seen = new Map<string, number>()
  const named = new Set<string>()
  let since: number | undefined
  const read = Effect.fnUntraced(function* () {
    const found = yield* records.writtenSince(filter, since)
    const fresh = found.rows.filter(({ requestId }) => !seen.has(requestId))
    for (const row of fresh) seen.set(row.requestId, row.completedAt.getTime())
    since = found.now - overlapMs
    // A second more, because times are cut to milliseconds.
    const oldest = since - 1000
    seen = new Map([...seen].filter(([, at]) => at >= oldest))
    const unreadable = found.unreadable.filter(({ row }) => !named.has(row))
    for (const { row } of unreadable) named.add(row)
    return { rows: fresh, unreadable } satisfies Listed<RequestRow>
  })
  const { now } = yield* records.writtenSince(filter, undefined)
  since = now - overlapMs
  yield* read()
  return read
})

/** The waits between tries: twice as long each time, up to ten seconds. */
const whileDown = Schedule.min([Schedule.exponential("500 millis"), Schedule.spaced("10 seconds")])

/**
 * Repeats a read until the database answers, and says once that it does not. A read that failed has marked no row as shown,
 * and the next one begins where the last good one did: so no row is missing, and none is shown twice.
 */
const untilAnswered = Effect.fnUntraced(function* <A, E, R>(read: Effect.Effect<A, E, R>) {
  let isDown = false
  const found = yield* read.pipe(
    Effect.tapError((error) => {
      if (isDown || !(error instanceof RegistryDown)) return Effect.void
      isDown = true
      return Effect.flatMap(Json, (json) => printErrors([...errorMessages(error), "trying again"], json))
    }),
    Effect.retry({ schedule: whileDown, while: (error) => error instanceof RegistryDown })
  )
  if (isDown) yield* noteAsText("tollgate: the database answers again")
  return found
})

const printRows = (rows: ReadonlyArray<RequestRow>) =>
  Effect.flatMap(Json, (json) =>
    Effect.forEach(rows, (row) => Console.log(json ? toJsonLine(row) : requestLine(row)), { discard: true })
  )

const text = (flag: string, metavar: string, description: string) =>
  Flag.String(flag).pipe(Flag.withDescription(description), Flag.withMetavar(metavar), Flag.optional)

export const requests = Command.make(
  "requests",
  {
    key: Flag.optional(flags.prefix("key")),
    tenant: Flag.optional(flags.tenant),
    status: text("status", "n", "Only with this status, such as 429, or of a class, such as 5xx"),
    since: text("since", "time", "Only requests of the last 45m, 12h, 30d or 2w; default: 1d"),
    limit: Flag.Int("limit").pipe(
      Flag.withDescription("Number of requests, the newest; 1 to 1000"),
      Flag.withMetavar("n"),
      Flag.withDefault(50)
    ),
    follow: Flag.Boolean("follow").pipe(
      Flag.withDefault(false),
      Flag.withDescription(
        "Go on with new requests as they end, until interrupted; with --json one object a line"
      )
    )
  },
  Effect.fnUntraced(function* (given) {
    const records = yield* Records
    const status = Option.isSome(given.status) ? yield* readStatus(given.status.value) : undefined
    const sinceMs = yield* readLifetime(
      Option.getOrElse(given.since, () => "1d"),
      "since"
    )
    const filter: RequestFilter = {
      ...(Option.isSome(given.key) ? { key: given.key.value } : {}),
      ...(Option.isSome(given.tenant) ? { tenant: given.tenant.value } : {}),
      ...(status === undefined ? {} : { status })
    }
    // Before the list, so that nothing falls between.
    const next = given.follow ? yield* makeFollower(filter) : undefined
    const { exhausted, rows, unreadable } = yield* records.requests({
      ...filter,
      sinceMs,
      limit: given.limit
    })
    if (exhausted) {
      yield* note(
        `only the newest ${amount(maxScanned)} requests were searched: use --key, or a shorter --since`
      )
    }
    // Oldest first, so that a terminal shows the newest at its end.
    const listed = rows.toReversed()
    if (next === undefined) {
      return yield* showListed({ rows: listed, unreadable }, "no requests", requestTable)
    }
    yield* nameUnreadable(unreadable)
    const shown = new Set(rows.map(({ requestId }) => requestId))
    yield* printRows(listed)
    for (;;) {
      // Those that were written between the first look and the list are in both.
      const fresh = yield* untilAnswered(next())
      yield* printRows(fresh.rows.filter(({ requestId }) => !shown.delete(requestId)))
      yield* nameUnreadable(fresh.unreadable)
      yield* Effect.sleep("1 second")
    }
  })
).pipe(
  Command.withDescription("List requests of the audit, the newest last: who asked what, and how it ended"),
  Command.withExamples([
    { command: "tollgate requests --tenant acme --status 5xx --since 2h" },
    { command: "tollgate requests --key tg_4fJ2kQ9sX --follow" }
  ])
)
