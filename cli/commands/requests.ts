/** The commands that list requests of the audit, and show all that it has of one. */
import { Console, Effect, Schedule } from "effect"
import { Argument, Command } from "effect/cli"
import { mustBe, RegistryDown } from "../../src/admin/Errors.ts"
import { Needs } from "../Needs.ts"
import type { Records } from "../../src/admin/records/Records.ts"
import {
  maxScanned,
  type RequestDetails,
  type RequestFilter,
  type RequestRow
} from "../../src/admin/records/requests.ts"
import { isEndUser } from "../../src/domain/EndUser.ts"
import { withoutDefaultTag } from "../../src/domain/modelName.ts"
import type { OpenRequest } from "../../src/replicas/Replicas.ts"
import { described } from "../help.ts"
import { errorMessages, UnknownRequest } from "../errorMessages.ts"
import { printErrors } from "../exit.ts"
import * as flags from "../flags.ts"
import { listOpen, silentNames } from "../gateways.ts"
import { whyOf } from "../why.ts"
import { boundsOf, periodFlags, periodLine, selection } from "../period.ts"
import {
  amount,
  type Cell,
  counted,
  duration,
  factsOf,
  Json,
  note,
  noteAsText,
  notes,
  padded,
  show,
  showList,
  shown,
  type Table,
  tableOf,
  toJsonLine
} from "../terminal.ts"
import { times } from "../zone.ts"

type Asked = Pick<RequestRow, "tenant" | "key" | "name" | "end_user" | "model" | "tokens_in" | "tokens_out">

/** Who asked what. */
const asked: { readonly [header: string]: (row: Asked) => Cell } = {
  TENANT: ({ tenant }) => tenant,
  KEY: ({ key }) => key,
  NAME: ({ name }) => name,
  USER: ({ end_user }) => end_user,
  MODEL: ({ model }) => model,
  IN: ({ tokens_in }) => tokens_in,
  OUT: ({ tokens_out }) => tokens_out
}

/** `*` marks a corrected row, `×3` a row that stands for three requests. */
const columns: { readonly [header: string]: (row: RequestRow) => Cell } = {
  ARRIVED: ({ arrived_at }) => ({ at: new Date(arrived_at), form: "second" }),
  STATUS: ({ corrected, repeats, status }) =>
    `${status}${corrected ? "*" : ""}${repeats > 1 ? ` ×${amount(repeats)}` : ""}`,
  ...asked,
  MS: ({ latency_ms }) => latency_ms,
  REQUEST: ({ request_id }) => request_id,
  WHY: (row) => whyOf(row) ?? ""
}

const requestTable = (rows: ReadonlyArray<RequestRow>) => tableOf(rows, columns)

const sumLine = (rows: ReadonlyArray<RequestRow>): string => {
  const sum = (of: "repeats" | "tokens_in" | "tokens_out") => rows.reduce((total, row) => total + row[of], 0)
  return `${counted(sum("repeats"), "request")}, ${amount(sum("tokens_in"))} tokens in, ${amount(sum("tokens_out"))} tokens out`
}

const widths = [26, 6, 12, 12, 12, 12, 20, 7, 7, 7, 36, 0]

/** One line, for a list that grows. */
const requestLine = (row: RequestRow, timeText: Effect.Success<typeof times>): string =>
  (requestTable([row]).rows[0] ?? [])
    .map((cell, column) => padded(shown(cell, timeText), widths[column] ?? 0))
    .join("  ")
    .trimEnd()

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
export const makeFollower = Effect.fnUntraced(function* (records: Records["Service"], filter: RequestFilter) {
  let seen = new Map<string, number>()
  let since: number | undefined
  const read = Effect.fnUntraced(function* () {
    const found = yield* records.writtenSince(filter, since)
    const fresh = found.rows.filter(({ request_id }) => !seen.has(request_id))
    for (const row of fresh) seen.set(row.request_id, row.completed_at.getTime())
    since = found.now - overlapMs
    // A second more, because times are cut to milliseconds.
    const oldest = since - 1000
    seen = new Map([...seen].filter(([, at]) => at >= oldest))
    return fresh
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

const printRows = Effect.fnUntraced(function* (rows: ReadonlyArray<RequestRow>) {
  const [json, timeText] = [yield* Json, yield* times]
  for (const row of rows) yield* Console.log(json ? toJsonLine(row) : requestLine(row, timeText))
})

type Open = OpenRequest & { readonly name: string | null }

const openColumns: { readonly [header: string]: (row: Open) => Cell } = {
  STATE: ({ waits }) => (waits ? "waits" : "runs"),
  AGE: ({ age_ms }) => duration(age_ms),
  ...asked,
  HELD: ({ held }) => held,
  REQUEST: ({ request_id }) => request_id
}

/** What runs and waits now, the oldest first, as the gateways themselves say. */
const showOpen = Effect.fnUntraced(function* ({ key, model, tenant, user }: RequestFilter) {
  const registry = yield* Needs.registry
  const open = yield* listOpen
  const all = open.answers.flatMap(({ requests }) => requests)
  const keys = yield* registry.namesOf(all.map(({ key }) => key))
  const found = all
    .filter(
      (one) =>
        (key ?? one.key) === one.key &&
        (tenant ?? one.tenant) === one.tenant &&
        (model === undefined || withoutDefaultTag(model) === withoutDefaultTag(one.model)) &&
        (user === undefined || isEndUser(one.end_user, user, keys.get(one.key)?.account))
    )
    .toSorted((one, other) => other.age_ms - one.age_ms)
  const rows = found.map((one): Open => ({ ...one, name: keys.get(one.key)?.name ?? null }))
  yield* showList(rows, "no open requests", (some) => tableOf(some, openColumns))
  const unlisted = open.answers.reduce((sum, { open }) => sum + open, 0) - all.length
  yield* notes([
    ...(open.silent.length === 0 ? [] : [`Not answered: ${silentNames(open)}. What it runs is not listed.`]),
    ...(unlisted === 0 ? [] : [`${counted(unlisted, "newer request")} not listed.`])
  ])
})

export const requests = Command.make(
  "requests",
  {
    ...flags.owner,
    ...selection,
    ...periodFlags("24h ago"),
    open: flags.toggle("open", "Those that run and wait now, with age and tokens, instead of the audit"),
    limit: flags.count("limit", "Number of requests, the newest; 1 to 1000; default 50").pipe(flags.optional),
    follow: flags.toggle(
      "follow",
      "Go on with new requests as they end, until interrupted; with --json one object a line"
    )
  },
  Effect.fnUntraced(function* ({ follow, limit, month, open, since, until, ...filter }) {
    const key = filter.key === undefined ? undefined : yield* flags.keyOf(filter.key)
    if (open) {
      const { status } = filter
      const others = { follow: follow ? true : undefined, limit, month, since, status, until }
      const [alien] = Object.entries(others).find(([, given]) => given !== undefined) ?? []
      if (alien !== undefined) return yield* mustBe(alien, "left out when --open is given")
      return yield* showOpen({ ...filter, key })
    }
    const records = yield* Needs.records
    const bounds = yield* boundsOf({ month, since, until })
    if (follow && bounds.until !== undefined) {
      const field = until === undefined ? "month" : "until"
      return yield* mustBe(field, "left out when --follow is given")
    }
    const query = { ...filter, limit: limit ?? 50, key, ...bounds }
    // Before the list, so that nothing falls between.
    const next = follow ? yield* makeFollower(records, query) : undefined
    const { exhausted, period, rows } = yield* records.requests(query)
    if (exhausted) {
      yield* note(
        `only the newest ${amount(maxScanned)} requests were searched: use --key, or a later --since`
      )
    }
    // Oldest first, so that a terminal shows the newest at its end.
    const listed = rows.toReversed()
    if (next === undefined) {
      const none = `no requests, ${periodLine(period)}`
      return yield* listed.length === 0
        ? show([], none)
        : show(listed, requestTable(listed), "", sumLine(rows), periodLine(period))
    }
    const shown = new Set(rows.map(({ request_id }) => request_id))
    yield* printRows(listed)
    for (;;) {
      // Those that were written between the first look and the list are in both.
      const fresh = yield* untilAnswered(next())
      yield* printRows(fresh.filter(({ request_id }) => !shown.delete(request_id)))
      yield* Effect.sleep("1 second")
    }
  })
).pipe(
  described(
    "List requests of the audit, the newest last: who asked what, and how it ended",
    "tollgate requests --tenant acme --status 5xx --since 2h",
    "tollgate requests --key tg_4fJ2kQ9sX --follow",
    ["tollgate requests --open", "Who runs and waits now?"]
  )
)

const block = (title: string, fields: object | undefined): ReadonlyArray<string | Table> =>
  fields === undefined
    ? []
    : [
        title,
        factsOf(
          Object.entries(fields).map(([name, value]): [string, Cell] => [
            `  ${name.replaceAll("_", " ")}`,
            value instanceof Date ? value.toISOString() : value === null ? null : String(value)
          ])
        )
      ]

/** As the client got it. */
const whyNow = ({ correction, row }: RequestDetails): string | undefined =>
  row === undefined
    ? undefined
    : whyOf({ ...row, ...(correction === undefined ? {} : { ...correction, detail: null }) })

const describe = (details: RequestDetails): ReadonlyArray<string | Table> => {
  const { correction, open, row } = details
  const why = whyNow(details)
  return [
    ...(why === undefined ? [] : [why, ""]),
    ...block("audit row, as it was written", row),
    ...block("correction: what the client got, and the tokens to add", correction),
    ...block("open: it runs, or its process died and its lease ends", open)
  ]
}

/** What the client got and what is charged. */
const toJson = (details: RequestDetails) => {
  const { correction, open, row } = details
  return {
    request_id: row?.request_id ?? open?.request_id ?? null,
    state: row === undefined ? "open" : "ended",
    status: correction?.status ?? row?.status ?? null,
    tokens_in: (row?.tokens_in ?? 0) + (correction?.tokens_in ?? 0),
    tokens_out: (row?.tokens_out ?? 0) + (correction?.tokens_out ?? 0),
    row: row ?? null,
    correction: correction ?? null,
    open: open ?? null,
    why: whyNow(details) ?? null
  }
}

export const showRequest = Command.make(
  "show-request",
  {
    id: Argument.String("id").pipe(
      Argument.withDescription("The X-Request-ID of the answer, or the one that the client sent"),
      Argument.filter(
        (id) => /^[\x21-\x7e]{1,64}$/.test(id),
        () => "1 to 64 characters without spaces"
      )
    )
  },
  Effect.fnUntraced(function* ({ id }) {
    const records = yield* Needs.records
    const found = yield* records.request(id)
    const tallied = found.length === 0 ? yield* records.talliedAround(id) : []
    if (tallied.length > 0) {
      yield* note("it has no row of its own; these rows stand for several requests of that second")
    } else if (found.length === 0) {
      return yield* new UnknownRequest({ id, searched: 5 * maxScanned })
    }
    yield* show(
      { requests: found.map(toJson), tallied },
      ...(tallied.length > 0
        ? [requestTable(tallied)]
        : found.flatMap((details, n) => [...(n === 0 ? [] : [""]), ...describe(details)]))
    )
  })
).pipe(
  described(
    "Show all that the audit has of one request: its row, its correction, whether it is still open",
    "tollgate show-request 01a1fca4-4f59-7db5-bd9d-1ef8280fed72"
  )
)
