/** `report`: its sums are those of the ledger, to the token, whatever happened to the requests. */
import { writeFileSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { reportColumns } from "../../src/admin/records/report.ts"
import { Audit } from "../../src/audit/Audit.ts"
import type { Usage } from "../../src/domain/Usage.ts"
import { Written } from "../contract/Audit.ts"
import { liveWorld } from "../contract/auditWorld.ts"
import { queuedFor } from "../support/permits.ts"
import { callerOf, endOf, intentOf, refusalOf, usageOf } from "../support/records.ts"
import { csv } from "../../cli/csv.ts"
import { fileOf, tollgateHere } from "./inProcess.ts"
import { failsWith, json, succeeds, tollgate } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const World = layerRegistry({ defaults: { rpm: 60, tpm: 100_000, concurrent: 4 } }).pipe(
  Layer.provideMerge(liveWorld)
)

const newCaller = Effect.fnUntraced(function* (tenant: string) {
  const registry = yield* Registry
  yield* Effect.ignore(registry.createTenant({ name: tenant }))
  const { key } = yield* registry.createKey({ tenant, name: `of ${tenant}`, allowDuplicate: true })
  const [row] = yield* sql<{ readonly id: string; readonly tenant: string }>`
    SELECT id::text, tenant_id::text AS tenant FROM api_keys WHERE prefix = ${key.prefix}`
  return { ...callerOf(row?.id, row?.tenant), keyPrefix: key.prefix }
})

/** Answers, errors, clients that left, requests of dead processes, some of which ended after all, and refusals. */
const traffic = Effect.fnUntraced(function* (
  callers: ReadonlyArray<Effect.Success<ReturnType<typeof newCaller>>>
) {
  const [audit, written] = [yield* Audit, yield* Written]
  const models = ["a:1", "b:1", "=c:1"]
  for (let n = 0; n < 48; n += 1) {
    const caller = callers[n % callers.length] ?? callerOf()
    const intent = {
      ...intentOf({ caller, arrivedAt: Date.now(), ...(n % 4 === 0 ? {} : { endUser: `user ${n % 4}` }) }),
      model: models[n % 3] ?? ""
    }
    const loadMs = n % 4 === 1 ? { loadMs: 1500 } : {}
    const usage: Usage = { ...usageOf(n + 1, 3 * n), ...(n % 2 === 0 ? {} : { tokensCached: n }) }
    const end = (outcome: { readonly status?: number; readonly errorType?: string } = {}) =>
      Effect.suspend(() => audit.close(endOf(intent, usage, { ...loadMs, ...outcome })))
    yield* audit.open(queuedFor(intent))
    switch (n % 6) {
      case 0:
        yield* end({ status: 502, errorType: "bad_gateway" })
        break
      case 1:
        yield* end({ status: 499, errorType: "client_closed_request" })
        break
      case 2:
        yield* written.beat(intent.arrival.requestId, usageOf(1, 7))
        yield* written.abort(intent.arrival.requestId)
        break
      case 3:
        // Its process ended it after all: a correction, with another status.
        yield* written.abort(intent.arrival.requestId)
        yield* end()
        break
      default:
        yield* end()
    }
    if (n % 5 === 0) yield* audit.refuse(refusalOf({ caller }))
  }
})

const Row = Schema.Struct({
  requests: Schema.Finite,
  tokens_in: Schema.Finite,
  tokens_cached: Schema.Finite,
  tokens_out: Schema.Finite,
  errors: Schema.Finite
})
type Sums = typeof Row.Type
const Rows = Schema.Array(Row)

const add = (rows: ReadonlyArray<Sums>): Sums =>
  rows.reduce(
    (sum, row) => ({
      requests: sum.requests + row.requests,
      tokens_in: sum.tokens_in + row.tokens_in,
      tokens_cached: sum.tokens_cached + row.tokens_cached,
      tokens_out: sum.tokens_out + row.tokens_out,
      errors: sum.errors + row.errors
    }),
    { requests: 0, tokens_in: 0, tokens_cached: 0, tokens_out: 0, errors: 0 }
  )

/** Requests and tokens of the ledger, errors and cached tokens of the audit. */
const truth = Effect.fnUntraced(function* (tenant: string | null) {
  const [row] = yield* sql`
    SELECT sum(requests)::float8 AS requests, sum(tokens_in)::float8 AS tokens_in, sum(tokens_out)::float8 AS tokens_out,
      (SELECT coalesce(sum(a.tokens_cached), 0)::float8 FROM audit_log a JOIN tenants t ON t.id = a.tenant_id
        WHERE a.admitted_at IS NOT NULL AND t.name = coalesce(${tenant}, t.name)) AS tokens_cached,
      (SELECT count(*)::float8 FROM audit_log a LEFT JOIN audit_corrections c USING (request_id) JOIN tenants t ON t.id = a.tenant_id
        WHERE a.admitted_at IS NOT NULL AND coalesce(c.status, a.status) >= 400
          AND t.name = coalesce(${tenant}, t.name)) AS errors
    FROM ledger l JOIN tenants t ON t.id = l.tenant_id WHERE t.name = coalesce(${tenant}, t.name)`
  return yield* Schema.decodeUnknownEffect(Row)(row)
})

const reported = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  const ran = yield* tollgateHere("report", ...args, "--json")
  succeeds(ran)
  return yield* json(Rows, ran)
})

const test = testWith(it.effect, World)

test("when requests ended in every way, then each report adds up to the ledger and to the errors of the audit", function* () {
  const callers = [yield* newCaller("acme"), yield* newCaller("acme"), yield* newCaller("umbra")]
  yield* traffic(callers)
  for (const tenant of [null, "acme"]) {
    const expected = yield* truth(tenant)
    assert.isAbove(expected.errors, 10)
    const filter = tenant === null ? [] : ["--tenant", tenant]
    for (const by of reportColumns) {
      for (const top of [[], ["--top", "1"]]) {
        assert.deepStrictEqual(
          add(yield* reported("--by", by, ...top, ...filter)),
          expected,
          `${by} ${top.join(" ")}`
        )
      }
    }
  }
  const models = yield* json(
    Schema.Array(Schema.Struct({ model: Schema.String })),
    yield* tollgateHere("report", "--by", "model", "--json")
  )
  assert.deepStrictEqual(models.map(({ model }) => model).toSorted(), ["=c:1", "a:1", "b:1"])
  const users = yield* json(
    Schema.Array(Schema.Struct({ user: Schema.NullOr(Schema.String) })),
    yield* tollgateHere("report", "--by", "user", "--json")
  )
  assert.sameMembers(
    users.map(({ user }) => user),
    [null, "user 1", "user 2", "user 3"]
  )

  // The same, as a process and for a spreadsheet.
  const sheet = yield* tollgate("report", "--by", "model", "--csv")
  succeeds(sheet)
  const [head, ...lines] = sheet.stdout.trimEnd().split("\n")
  assert.strictEqual(
    head,
    "since,until,model,requests,tokens_in,tokens_cached,tokens_out,errors,loads,load_s"
  )
  assert.isTrue(
    lines.some((line) => /^\d{4}-\d\d-01,\d{4}-\d\d-\d\d,'=c:1,/.test(line)),
    "a formula"
  )
  const expected = yield* truth(null)
  const figures = lines.map((line) => line.split(",").slice(-7, -2).map(Number))
  assert.deepStrictEqual(
    [0, 1, 2, 3, 4].map((column) => figures.reduce((sum, row) => sum + (row[column] ?? 0), 0)),
    Object.values(expected)
  )

  // A request that was closed as aborted before it ended has no load.
  const Loads = Schema.Array(
    Schema.Struct({ model: Schema.String, loads: Schema.Finite, load_s: Schema.Finite })
  )
  for (const period of [[], ["--since", "24h"]]) {
    const loads = yield* json(Loads, yield* tollgateHere("report", "--by", "model", ...period, "--json"))
    assert.deepStrictEqual(
      loads.toSorted((one, two) => (one.model < two.model ? -1 : 1)),
      [
        { model: "=c:1", loads: 4, load_s: 6 },
        { model: "a:1", loads: 0, load_s: 0 },
        { model: "b:1", loads: 4, load_s: 6 }
      ],
      period.join(" ")
    )
  }
  // Parts of a day, a user and a status are not in the ledger's sums.
  for (const by of reportColumns) {
    const whole = yield* reported("--by", by, "--since", "yesterday")
    assert.deepStrictEqual(yield* reported("--by", by, "--since", "24h", "--until", "now"), whole, by)
    assert.deepStrictEqual(yield* reported("--by", by, "--since", "49h", "--until", "25h"), [], by)
  }
  const [ofUser] = yield* sql<{ readonly requests: number; readonly refused: number }>`
    SELECT count(*) FILTER (WHERE end_user = 'user 1' AND model = 'b:1')::float8 AS requests,
      sum(repeats) FILTER (WHERE status = 401)::float8 AS refused FROM audit_log`
  const some = ["--user", "user 1", "--model", "b:1"]
  assert.isAbove(ofUser?.requests ?? 0, 0)
  for (const by of reportColumns)
    assert.strictEqual(add(yield* reported("--by", by, ...some)).requests, ofUser?.requests, by)
  assert.isAbove(ofUser?.refused ?? 0, 0)
  assert.strictEqual(
    add(yield* reported("--status", "401", "--since", "2000-01-01")).requests,
    ofUser?.refused
  )
  assert.strictEqual(add(yield* reported("--model", "b:1")).requests, 16)

  // A million tokens of a:1 cost 1 in and 4 out, of b:1 half; =c:1 has no price.
  const prices = fileOf(
    "currency: EUR\nmodels: { a:1: { in: 1, out: 4 }, b:1: { in: 0.5, out: 2, cached: 0 } }\n"
  )
  const [sums] = yield* sql<{ readonly cost: number; readonly unpriced: number }>`
    SELECT (sum(CASE model WHEN 'a:1' THEN tokens_in + 4 * tokens_out WHEN 'b:1' THEN (tokens_in - tokens_cached + 4 * tokens_out) / 2.0 END) / 1e6)::float8
      AS cost, (sum(tokens_in + tokens_out) FILTER (WHERE model = '=c:1'))::float8 AS unpriced FROM usage_daily`
  const Costs = Schema.Array(Schema.Struct({ cost: Schema.Finite }))
  for (const by of reportColumns) {
    const ran = yield* tollgateHere("report", "--by", by, "--price", prices, "--json", "--top", "2")
    const costs = yield* json(Costs, ran)
    assert.closeTo(
      costs.reduce((sum, { cost }) => sum + cost, 0),
      sums?.cost ?? 0,
      1e-9,
      by
    )
    assert.include(
      ran.stderr,
      `${sums?.unpriced.toLocaleString("en-US")} tokens are of models without a price`
    )
  }
  assert.match((yield* tollgateHere("report", "--price", prices)).stdout, /ERRORS +COST EUR\n[^]* 0\.0\d+\n/)
  assert.match(
    (yield* tollgateHere("report", "--price", prices, "--csv")).stdout,
    /^since,until,tenant,.*,errors,cost,currency\n[^\n]*,0\.0\d+,EUR\n/
  )
  writeFileSync(prices, "models: { a:1: { in: -1, out: 4 } }")
  failsWith(
    yield* tollgateHere("report", "--price", prices),
    /it must have prices of a million tokens by model/
  )

  const text = (yield* tollgateHere("report", "--by", "key")).stdout
  assert.match(text, /KEY +NAME +TENANT +REQUESTS +TOKENS_IN +TOKENS_CACHED +TOKENS_OUT +ERRORS/)
  assert.match(text, new RegExp(`\nall .* ${expected.tokens_in.toLocaleString("en-US")} `))
  assert.match(text, /UTC days/)
})

it("when a cell holds a separator, a quote or a formula, then it stays one cell of text", () => {
  assert.strictEqual(
    csv(["a"], [["x,y"], ['say "hi"'], ["two\nlines"], ["+1"], ["@x"], ["\tx"], [null], [-1]]),
    ["a", '"x,y"', '"say ""hi"""', '"two\nlines"', "'+1", "'@x", "'\tx", "", "-1"].join("\n")
  )
})
