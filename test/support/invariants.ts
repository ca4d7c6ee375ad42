/**
 * What holds of the gateway whatever was done to it. `watch.ts` looks after every case of every test that starts one,
 * `npm run soak` on whole processes:
 *
 * 1. every answer carries its id, errors have their shape, and each request has its audit row, with its status in the row or
 *    in its correction, or is counted in one;
 * 2. nothing is open after a quiet moment: no intent, no slot, no hold;
 * 3. audit with its corrections = ledger = live counters = `show-usage`, to the token;
 * 4. no key, address or word of our inside in an answer, an audit row or a metric, and no key or address in a log line;
 * 5. the process is as it was: nothing unhandled, memory and descriptors back.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import { type Period, periods } from "../../src/domain/Limits.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { books } from "./books.ts"
import { idOf, wantsRow } from "./invariants/answers.ts"
import { type Private, privateIn } from "./invariants/leaks.ts"
import type { Answer } from "./invariants/Witness.ts"

type Problems<R> = Effect.Effect<ReadonlyArray<string>, never, R>

const Row = Schema.Struct({ id: Schema.String, status: Schema.Finite, text: Schema.String })
const decodeRows = Schema.decodeUnknownEffect(Schema.Array(Row))

const Tallied = Schema.Struct({ status: Schema.Finite, more: Schema.Finite })
const decodeTallied = Schema.decodeUnknownEffect(Schema.Array(Tallied))

/** A refusal that is counted in a row is written within a second, and a busy database takes its time. */
const uncountedMs = 2000
const arrivedAt = (answer: Answer): number => Number.parseInt(idOf(answer).replace("-", "").slice(0, 12), 16)

/**
 * Each answer's row is there and says what the client was told; no row says what nobody may read. A process that was killed, at
 * an epoch time of `killed`, took the refusals with it that it had counted and not written (docs/audit.md).
 */
export const rowProblems = (
  answers: ReadonlyArray<Answer>,
  known: Private,
  killed: ReadonlyArray<number> = []
): Problems<PgClient.PgClient> =>
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    const found = new Map<string, typeof Row.Type>()
    for (let at = 0; at < answers.length; at += 1000) {
      const ids = answers.slice(at, at + 1000).map(idOf)
      const rows = yield* decodeRows(
        yield* pg`SELECT a.request_id::text AS id, coalesce(c.status, a.status)::float8 AS status, a::text AS text
          FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
          WHERE a.request_id = ANY (ARRAY(SELECT jsonb_array_elements_text(${pg.json(ids)}))::uuid[])`
      )
      for (const row of rows) found.set(row.id, row)
    }
    // A row that stands for several requests has the id of the first.
    const tallied = new Map(
      (yield* decodeTallied(
        yield* pg`SELECT status::float8, sum(repeats - 1)::float8 AS more FROM audit_log WHERE repeats > 1 GROUP BY status`
      )).map(({ more, status }) => [status, more])
    )
    for (const answer of answers) {
      const dies = killed.some((at) => at - uncountedMs < arrivedAt(answer) && arrivedAt(answer) < at)
      if (dies && answer.status >= 400 && !found.has(idOf(answer)))
        tallied.set(answer.status, (tallied.get(answer.status) ?? 0) + 1)
    }
    const isTallied = ({ status }: Answer): boolean => {
      const more = tallied.get(status) ?? 0
      tallied.set(status, more - 1)
      return more > 0
    }
    return answers.flatMap((answer) => {
      const [id, wanted] = [idOf(answer), wantsRow(answer)]
      const row = found.get(id)
      const name = `${answer.status} ${answer.request?.method ?? ""} ${answer.request?.target.slice(0, 60) ?? ""} ${id}`
      if (row === undefined) return wanted === true && !isTallied(answer) ? [`no audit row: ${name}`] : []
      if (wanted === false) return [`an audit row: ${name}`]
      // A stream that broke after its first byte was a 200 for its client.
      const same = row.status === answer.status || answer.status === 200
      return [
        ...(same ? [] : [`${row.status} in the audit row: ${name}`]),
        ...privateIn(row.text, known).map((leak) => `${leak} in the audit row: ${name}`)
      ]
    })
  }).pipe(Effect.orDie)

const Sums = Schema.Struct({
  name: Schema.String,
  day: Schema.Finite,
  week: Schema.Finite,
  month: Schema.Finite,
  total: Schema.Finite,
  booked: Schema.Finite
})
/**
 * The sums of each tenant for which `show-usage` was right. Only tenants whose sums have changed since are asked for: all
 * of them after each test would take longer with each test.
 */
const shownBefore = new WeakMap<Registry["Service"], Map<string, string>>()
const decodeSums = Schema.decodeUnknownEffect(Schema.Array(Sums))

const Differing = Schema.Array(
  Schema.Struct({ key: Schema.String, ledger: Schema.String, usage: Schema.String })
)
const decodeDiffering = Schema.decodeUnknownEffect(Differing)

/** The usage by model adds up to the ledger, and its errors to the statuses of the audit. */
const usageProblems = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  const found = yield* decodeDiffering(
    yield* pg`
      WITH l AS (SELECT key_id, sum(requests) AS r, sum(tokens_in) AS i, sum(tokens_out) AS o FROM ledger GROUP BY 1),
        u AS (SELECT key_id, sum(requests) AS r, sum(tokens_in) AS i, sum(tokens_out) AS o, sum(errors) AS e
          FROM usage_daily GROUP BY 1),
        a AS (SELECT a.key_id, count(*) FILTER (WHERE coalesce(c.status, a.status) >= 400) AS e
          FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
          WHERE a.admitted_at IS NOT NULL GROUP BY 1)
      SELECT coalesce(l.key_id, u.key_id)::text AS key, concat_ws(' ', l.r, l.i, l.o, a.e) AS ledger,
        concat_ws(' ', u.r, u.i, u.o, u.e) AS usage
      FROM l FULL JOIN u USING (key_id) LEFT JOIN a USING (key_id)
      WHERE (l.r, l.i, l.o, a.e) IS DISTINCT FROM (u.r, u.i, u.o, u.e)`
  )
  return found.map(({ key, ledger, usage }) => `usage by model of key ${key}: ${usage}, ledger ${ledger}`)
})

/** Audit, ledger, live counters and what `show-usage` prints are the same, and nothing is under way. */
export const bookProblems: Problems<PgClient.PgClient | Meter | Registry> = Effect.gen(function* () {
  const [pg, registry] = [yield* PgClient.PgClient, yield* Registry]
  const { audit, counters, difference, ledger, leases, open } = yield* books
  const problems: Array<string> = []
  if (difference > 0) problems.push(`audit ${audit}, ledger ${ledger}, counters ${counters} tokens`)
  if (open > 0) problems.push(`${leases} slots or holds and ${open - leases} intents are open`)
  problems.push(...(yield* usageProblems))
  const tenants = yield* decodeSums(
    yield* pg`
      WITH today AS (SELECT (now() AT TIME ZONE 'UTC')::date AS day),
        spent AS (SELECT tenant_id, (admitted_at AT TIME ZONE 'UTC')::date AS day, tokens_in + tokens_out AS n
          FROM audit_log WHERE admitted_at IS NOT NULL
          UNION ALL SELECT tenant_id, (admitted_at AT TIME ZONE 'UTC')::date, tokens_in + tokens_out
          FROM audit_corrections),
        booked AS (SELECT tenant_id, sum(tokens_in + tokens_out) AS n FROM ledger GROUP BY tenant_id)
      SELECT t.name, coalesce((SELECT n FROM booked b WHERE b.tenant_id = t.id), 0)::float8 AS booked, coalesce(sum(s.n), 0)::float8 AS total,
        coalesce(sum(s.n) FILTER (WHERE s.day >= today.day), 0)::float8 AS day,
        coalesce(sum(s.n) FILTER (WHERE s.day >= date_trunc('week', today.day)), 0)::float8 AS week,
        coalesce(sum(s.n) FILTER (WHERE s.day >= date_trunc('month', today.day)), 0)::float8 AS month
      FROM tenants t CROSS JOIN today LEFT JOIN spent s ON s.tenant_id = t.id GROUP BY t.id, t.name`
  )
  const known = shownBefore.get(registry) ?? new Map<string, string>()
  shownBefore.set(registry, known)
  for (const tenant of tenants) {
    const sums = JSON.stringify(tenant)
    if (known.get(tenant.name) === sums) continue
    const before = problems.length
    for (const period of periods) {
      const shown = yield* registry.usage(tenant.name, period satisfies Period)
      const tokens = shown.tokensIn + shown.tokensOut
      if (tokens !== tenant[period])
        problems.push(`usage of ${tenant.name}, ${period}: shown ${tokens}, audited ${tenant[period]}`)
    }
    if (problems.length === before) known.set(tenant.name, sums)
    else known.delete(tenant.name)
  }
  return problems
}).pipe(Effect.orDie)
