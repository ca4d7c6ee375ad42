/** `reconcile`: books that are right are called right, also while requests run; each kind of difference is named and mended. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Redacted, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Counters } from "../../src/admin/books/Books.ts"
import { completionRow } from "../../src/audit/rows.ts"
import { insertIntents, writeRows } from "../../src/audit/statements.ts"
import { claimsWithoutLimits } from "../../src/domain/Reservation.ts"
import { layerMemory } from "../../src/gates/meter/memory/layer.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { repairFromAudit } from "../../src/ledger/audited.ts"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { intentRowOf } from "../support/permits.ts"
import { callerOf, endOf, intentOf, usageOf } from "../support/records.ts"
import { layerReadyRedis } from "../support/TestMeter.ts"
import { TestDatabase } from "../support/TestPostgres.ts"
import { layerTestRedis, TestRedis } from "../support/TestRedis.ts"
import { insert } from "./auditRows.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { failsWith, json, tollgateWith } from "./tollgate.ts"
import { sql } from "../support/sql.ts"
import { testWith } from "../support/testWith.ts"
import { comesTrue } from "../support/wait.ts"
import { utc } from "../../src/domain/Calendar.ts"

let looks = 0
/** Counts how often counters are looked at. */
const layerCounters = Layer.effect(
  Counters,
  Effect.map(Meter, (meter) => ({
    ...meter,
    snapshot: (...asked: Parameters<typeof meter.snapshot>) => {
      looks += 1
      return meter.snapshot(...asked)
    }
  }))
)
const World = layerCounters.pipe(
  Layer.provideMerge(Layer.fresh(layerMemory({ leaseS: 30 }))),
  Layer.provideMerge(Admin)
)

const Difference = Schema.Struct({
  kind: Schema.String,
  key: Schema.NullOr(Schema.String),
  match: Schema.String,
  requests: Schema.Array(Schema.String),
  more_requests: Schema.Finite,
  text: Schema.String,
  period: Schema.optionalKey(Schema.String)
})
const Proof = Schema.Struct({
  right: Schema.Boolean,
  whole: Schema.Boolean,
  running: Schema.Finite,
  dropped: Schema.NullOr(Schema.Struct({ keys_and_days: Schema.Finite, before: Schema.String })),
  counters: Schema.NullOr(Schema.Struct({ compared: Schema.Finite, busy: Schema.Finite })),
  compared: Schema.Struct({ keys_and_days: Schema.Finite }),
  differences: Schema.Array(Difference),
  mended: Schema.optionalKey(Schema.Record(Schema.String, Schema.Finite))
})

/** What the command finds. Its exit code says the same. */
const prove = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  const ran = yield* tollgateHere("reconcile", "--json", ...args)
  const proof = yield* json(Proof, ran)
  assert.strictEqual(ran.code, proof.right ? (proof.whole ? 0 : 2) : 1, ran.stderr)
  assert.strictEqual(ran.stderr, "")
  return proof
})

/** A key of a new tenant, as a caller. */
const newCaller = Effect.fnUntraced(function* (name: string) {
  yield* tollgateHere("create-tenant", "--name", name)
  const prefix = (yield* tollgateHere("create-key", "--tenant", name, "--name", name)).stdout.slice(0, 12)
  const [row] = yield* sql<{ readonly id: string; readonly tenant: string }>`
    SELECT id::text, tenant_id::text AS tenant FROM api_keys WHERE prefix = ${prefix}`
  return { ...callerOf(row?.id, row?.tenant), keyPrefix: prefix }
})
type Caller = Effect.Success<ReturnType<typeof newCaller>>

const accountOf = ({ keyId, tenantId }: Caller) => ({ group: tenantId, key: keyId })

/** An open request, as its gateway wrote it. */
const open = Effect.fnUntraced(function* (caller: Caller) {
  const intent = intentOf({ caller, arrivedAt: Date.now() })
  yield* insertIntents(yield* PgClient.PgClient, 30)([intentRowOf(intent)])
  return intent
})

/** A request of 5 tokens in and `out` tokens out, booked as gateways do. Returns its id. */
const book = Effect.fnUntraced(function* (caller: Caller, out: number) {
  const pg = yield* PgClient.PgClient
  const intent = intentOf({ caller, arrivedAt: Date.now() })
  yield* writeRows(pg)([completionRow(endOf(intent, usageOf(5, out)), utc)])
  return intent.arrival.requestId
})

/** The live counter of all time: of a key, or of its tenant. */
const count = (owner: { readonly group: string; readonly key?: string }, tokens: number) =>
  Effect.flatMap(Meter, (meter) => meter.load(owner, [{ counter: "total", tokens }]))

const counted = (caller: Caller) =>
  Effect.flatMap(Meter, (meter) =>
    Effect.map(meter.snapshot(accountOf(caller), Date.now()), ({ totals }) => totals.total)
  )

const table = (name: "audit_log" | "ledger") =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (client) => client<{ readonly row: string }>`SELECT t::text AS row FROM ${client(name)} t ORDER BY 1`
  )

const stale = (id: string) =>
  sql`UPDATE intents SET lease_until = now() - interval '1 minute' WHERE request_id = ${id}::text::uuid`

const test = testWith(it.effect, World)

test("when the books are right, then it says so with the sums, and exits with 0", function* () {
  const caller = yield* newCaller("acme")
  yield* book(caller, 10)
  yield* book(caller, 20)
  yield* count(accountOf(caller), 40)
  yield* count({ group: caller.tenantId }, 40)
  // Its counters do not exist, so it is not in use.
  yield* open(yield* newCaller("other"))
  const { code, stdout } = yield* tollgateHere("reconcile")
  assert.strictEqual(code, 0, stdout)
  assert.include(
    stdout,
    "The ledger has 2 requests, 10 tokens in and 30 out. They were compared for each key and day: 1."
  )
  assert.include(stdout, "1 request open")
  assert.match(stdout, /The books are right\.\n$/)
  const repaired = yield* prove("--repair")
  assert.isTrue(repaired.right)
  assert.deepStrictEqual([...new Set(Object.values(repaired.mended ?? {}))], [0])
})

/** Each plants one difference, and says what must be found. */
const kinds: ReadonlyArray<{
  readonly name: string
  readonly plant: (
    caller: Caller
  ) => Effect.Effect<
    { readonly kind: string; readonly text: RegExp; readonly requests?: ReadonlyArray<string> },
    unknown,
    Meter | PgClient.PgClient | SqlClient.SqlClient
  >
  readonly mended: Readonly<Record<string, number>>
}> = [
  {
    name: "the ledger was changed",
    plant: (caller) =>
      Effect.gen(function* () {
        yield* sql`UPDATE ledger SET tokens_out = tokens_out + 7 WHERE key_id = ${caller.keyId}::text::uuid`
        return {
          kind: "ledger",
          text: /37 out; the audit has 2 requests, 10 tokens in and 30 out\. The number of requests is the same, the tokens are not/
        }
      }),
    mended: { ledger: 1 }
  },
  {
    name: "the ledger lacks a request",
    plant: (caller) =>
      Effect.gen(function* () {
        const [row] = yield* insert(caller.keyPrefix)
        return {
          kind: "ledger",
          requests: [row?.id ?? ""],
          text: /The ledger lacks requests that the audit has\. Requests with just these tokens: /
        }
      }),
    // The counter gets the tokens of the request, too.
    mended: { ledger: 1, counters: 1 }
  },
  {
    name: "the audit lacks a request",
    plant: (caller) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM audit_log WHERE key_id = ${caller.keyId}::text::uuid AND tokens_out = 20`
        return { kind: "ledger", text: /The ledger has requests that the audit lacks/ }
      }),
    mended: { ledger: 1, corrections: 1 }
  },
  {
    name: "the counter of a key is too low",
    plant: (caller) =>
      Effect.gen(function* () {
        const id = yield* book(caller, 95)
        return {
          kind: "counter",
          requests: [id],
          text: /counter of all time has 40 tokens; the ledger has 140\. That is 100 too few/
        }
      }),
    mended: { counters: 1 }
  },
  {
    name: "a dead process holds tokens in the counters",
    plant: (caller) =>
      Effect.gen(function* () {
        const [meter, id] = [yield* Meter, crypto.randomUUID()]
        const claims = {
          ...claimsWithoutLimits(accountOf(caller)),
          limits: caller.limits,
          budgets: { total: 1000 }
        }
        yield* meter.reserve(claims, { id, tokens: 50, slot: true })
        yield* TestClock.adjust("31 seconds")
        return {
          kind: "hold",
          requests: [id],
          text: /still hold tokens of requests that have ended\. The requests: /
        }
      }),
    mended: { holds: 1 }
  },
  {
    name: "an intent is left",
    plant: (caller) =>
      Effect.gen(function* () {
        const { arrival } = yield* open(caller)
        yield* stale(arrival.requestId)
        return {
          kind: "intent",
          requests: [arrival.requestId],
          text: /Requests of a dead process are still open, and nobody has ended them/
        }
      }),
    // Its estimate of 5 tokens is charged.
    mended: { intents: 1, counters: 1 }
  },
  {
    name: "an intent is left beside its audit row",
    plant: (caller) =>
      Effect.gen(function* () {
        const intent = yield* open(caller)
        yield* sql`CREATE TABLE kept AS SELECT * FROM intents`
        yield* writeRows(yield* PgClient.PgClient)([completionRow(endOf(intent, usageOf(0, 0)), utc)])
        yield* sql`INSERT INTO intents SELECT * FROM kept`
        yield* stale(intent.arrival.requestId)
        return {
          kind: "intent",
          requests: [intent.arrival.requestId],
          text: /Requests that have an audit row are still marked as open/
        }
      }),
    mended: { intents: 1 }
  }
]

for (const { mended, name, plant } of kinds) {
  test(`when ${name}, then it is named, --repair mends it, and a second run finds nothing`, function* () {
    const caller = yield* newCaller("acme")
    yield* book(caller, 10)
    yield* book(caller, 20)
    yield* count(accountOf(caller), 40)
    const planted = yield* plant(caller)
    const before = {
      audit: yield* table("audit_log"),
      ledger: yield* table("ledger"),
      counter: yield* counted(caller)
    }

    const { counters, differences } = yield* prove()
    const [first] = differences
    // A counter is compared with the ledger, also with a wrong one.
    assert.deepStrictEqual(
      differences.map(({ kind }) => kind).filter((kind, n) => n === 0 || kind !== "counter"),
      [planted.kind]
    )
    assert.deepInclude(first, { kind: planted.kind, key: caller.keyPrefix, more_requests: 0 })
    assert.match(first?.text ?? "", new RegExp(`^key ${caller.keyPrefix} \\(acme\\): `))
    assert.match(first?.text ?? "", planted.text)
    if (planted.requests !== undefined) assert.deepStrictEqual(first?.requests, planted.requests)
    assert.isAtLeast((counters?.compared ?? 0) + (counters?.busy ?? 0), 1)
    const after = {
      audit: yield* table("audit_log"),
      ledger: yield* table("ledger"),
      counter: yield* counted(caller)
    }
    assert.deepStrictEqual(after, before, "without --repair nothing changes")

    const repaired = yield* prove("--repair")
    assert.isTrue(repaired.right)
    const none = { ledger: 0, corrections: 0, counters: 0, holds: 0, intents: 0 }
    assert.deepStrictEqual(repaired.mended, { ...none, ...mended })
    const rows = yield* table("audit_log")
    for (const row of before.audit) assert.deepInclude(rows, row, "no audit row changes")
    const second = yield* prove("--repair")
    assert.deepStrictEqual(second.mended, none)
    assert.deepStrictEqual(second.differences, [])
  })
}

test("when the audit has lost a request, then its tokens stay spent and its correction says so", function* () {
  const caller = yield* newCaller("acme")
  const id = yield* book(caller, 20)
  yield* book(caller, 1)
  yield* sql`DELETE FROM audit_log WHERE request_id = ${id}::text::uuid`
  const before = yield* table("ledger")
  yield* prove("--repair")
  assert.deepStrictEqual(yield* table("ledger"), before)
  assert.deepStrictEqual(
    yield* sql`SELECT key_prefix, tokens_in::int, tokens_out::int, status, error_type FROM audit_corrections`,
    [
      {
        key_prefix: caller.keyPrefix,
        tokens_in: 5,
        tokens_out: 20,
        status: 500,
        error_type: "audit_row_lost"
      }
    ]
  )
})

test("when the ledger of an end user was changed or lacks a request, then it is named and mended", function* () {
  const [caller, pg] = [yield* newCaller("acme"), yield* PgClient.PgClient]
  const [one, two] = [crypto.randomUUID(), crypto.randomUUID()]
  const ids: Array<string> = []
  for (const userAccount of [one, one, two]) {
    const intent = intentOf({ caller, arrivedAt: Date.now() })
    yield* writeRows(pg)([completionRow(endOf(intent, usageOf(5, 10), { userAccount }), utc)])
    ids.push(intent.arrival.requestId)
  }
  const books = pg`SELECT user_account::text AS user, requests::int, tokens_in::int, tokens_out::int FROM user_ledger ORDER BY 2 DESC`
  const before = yield* books
  assert.isTrue((yield* prove()).right)
  yield* pg`UPDATE user_ledger SET tokens_out = tokens_out + 7 WHERE user_account = ${one}::text::uuid`
  yield* pg`DELETE FROM user_ledger WHERE user_account = ${two}::text::uuid`
  const { differences } = yield* prove()
  assert.deepStrictEqual(
    differences.map(({ kind, key, requests }) => [kind, key, requests.toSorted()]).toSorted(),
    [
      ["ledger", `${caller.keyPrefix}, user ${one}`, ids.slice(0, 2).toSorted()],
      ["ledger", `${caller.keyPrefix}, user ${two}`, ids.slice(2)]
    ].toSorted()
  )
  assert.strictEqual((yield* prove("--repair")).mended?.["ledger"], 2)
  assert.deepStrictEqual(yield* books, before)
  assert.isTrue((yield* prove()).right)
  // The audit has lost a row: what the user spent stays spent.
  yield* pg`DELETE FROM audit_log WHERE request_id = ${ids[2]}::text::uuid`
  assert.isTrue((yield* prove("--repair")).right)
  assert.deepStrictEqual(yield* books, before)
  // Also when the row was lost between the comparison and the repair: only the ledger of the key gets a correction for it.
  const corrections = pg`SELECT request_id FROM audit_corrections`
  const written = (yield* corrections).length
  const [none, names] = [
    { requests: 0, tokensIn: 0, tokensOut: 0 },
    { key: null, tenant: null }
  ]
  const [day, { keyId, tenantId }] = [new Date().toISOString().slice(0, 10), caller]
  yield* repairFromAudit(pg, { keyId, tenantId, user: two, ...names, day, audit: none, ledger: none })
  assert.deepStrictEqual(yield* books, before)
  assert.lengthOf(yield* corrections, written)
})

test("when a tenant's counter is too high, then it is named, and set to the ledger", function* () {
  const [caller, meter] = [yield* newCaller("acme"), yield* Meter]
  yield* book(caller, 10)
  yield* count({ group: caller.tenantId }, 500)
  const { differences } = yield* prove()
  assert.deepInclude(differences[0], { kind: "counter", key: null, period: "total" })
  assert.match(differences[0]?.text ?? "", /^tenant acme: .* That is 485 too many/)
  assert.deepInclude((yield* prove("--repair")).mended, { counters: 1 })
  assert.strictEqual(
    (yield* meter.snapshot({ group: caller.tenantId, accounts: [] }, Date.now())).totals.total,
    15
  )
})

test("when a key is in use in each look, then the books are right as far as compared, and it exits with 2", function* () {
  const caller = yield* newCaller("acme")
  yield* book(caller, 10)
  yield* count(accountOf(caller), 400)
  yield* open(caller)
  const { counters, differences, right, running, whole } = yield* prove()
  assert.deepStrictEqual([differences, counters, running], [[], { compared: 0, busy: 1 }, 1])
  assert.deepStrictEqual([right, whole], [true, false])
  for (const args of [["reconcile"], ["reconcile", "--repair"]]) {
    const { code, stderr, stdout } = yield* tollgateHere(...args)
    assert.deepStrictEqual([code, stderr], [2, ""])
    assert.match(stdout, /The books are right as far as compared\. With --wait each is compared once/)
  }
})

test("when it waits for a key in use, then it looks on until the request has ended, and its counter is compared", function* () {
  const caller = yield* newCaller("acme")
  yield* book(caller, 10)
  yield* count(accountOf(caller), 400)
  const intent = yield* open(caller)
  const before = looks
  const waiting = yield* Effect.forkScoped(prove("--wait"))
  // More than without --wait.
  assert.isTrue(yield* TestClock.withLive(comesTrue(() => looks > before + 30)))
  assert.isUndefined(waiting.pollUnsafe())
  yield* writeRows(yield* PgClient.PgClient)([completionRow(endOf(intent, usageOf(5, 10)), utc)])
  const { counters, differences } = yield* Fiber.join(waiting)
  assert.deepStrictEqual(counters, { compared: 1, busy: 0 })
  assert.match(differences[0]?.text ?? "", /has 400 tokens; the ledger has 30/)
  assert.isTrue((yield* prove("--wait", "--repair")).whole)
  assert.strictEqual(yield* counted(caller), 30)
})

test("when a tenant has too many keys to compare, then nothing waits for it, and the books are right as far as compared", function* () {
  const caller = yield* newCaller("acme")
  yield* sql`INSERT INTO api_keys (tenant_id, name, prefix, hash)
    SELECT tenant_id, 'n' || n, 'tg_' || lpad(n::text, 9, '0'), hash FROM api_keys, generate_series(1, 2000) n`
  yield* count({ group: caller.tenantId }, 400)
  const { counters, right, whole } = yield* prove("--wait")
  assert.deepStrictEqual([counters, right, whole], [{ compared: 0, busy: 1 }, true, false])
})

test("when many requests are involved, then some are named, with how many more there are", function* () {
  const caller = yield* newCaller("acme")
  yield* insert(caller.keyPrefix, { count: 23, at: "clock_timestamp()" })
  const { differences } = yield* prove()
  assert.deepInclude(differences[0], { kind: "ledger", match: "involved", more_requests: 3 })
  assert.lengthOf(differences[0]?.requests ?? [], 20)
  assert.deepInclude((yield* prove("--repair")).mended, { ledger: 1 })
  assert.deepStrictEqual(yield* sql`SELECT requests::int, tokens_in::int, tokens_out::int FROM ledger`, [
    { requests: 23, tokens_in: 23, tokens_out: 46 }
  ])
})

test("when old months of the audit were dropped, then the ledger's days of them are no difference", function* () {
  const caller = yield* newCaller("acme")
  yield* book(caller, 10)
  yield* sql`INSERT INTO ledger (key_id, day, tenant_id, requests, tokens_in, tokens_out)
      VALUES (${caller.keyId}::text::uuid, now()::date - 70, ${caller.tenantId}::text::uuid, 1, 2, 3)`
  const proof = yield* prove("--since", "100d")
  assert.isTrue(proof.right)
  assert.strictEqual(proof.dropped?.keys_and_days, 1)
  assert.strictEqual(proof.compared.keys_and_days, 1)
})

test("when a day is not in the period, then its difference is not found", function* () {
  const caller = yield* newCaller("acme")
  yield* insert(caller.keyPrefix)
  assert.isTrue((yield* prove("--since", "40d", "--until", "yesterday")).right)
  assert.isFalse((yield* prove("--since", "today")).right)
})

testWith(
  it.effect,
  layerRedisMeter({ leaseS: 30 }).pipe(
    Layer.provide(layerReadyRedis),
    Layer.provideMerge(Layer.fresh(layerTestRedis)),
    Layer.provideMerge(Admin)
  )
)("when the gateways count in Redis, then the command reads their counters and mends them", function* () {
  const [caller, { url }, redis] = [yield* newCaller("acme"), yield* TestDatabase, yield* TestRedis]
  yield* book(caller, 10)
  yield* count(accountOf(caller), 3)
  const environment = { DATABASE_URL: Redacted.value(url), REDIS_URL: redis.url }
  const found = yield* tollgateWith(environment, ["reconcile"])
  assert.strictEqual(found.code, 1, found.stdout + found.stderr)
  assert.match(found.stdout, /counter of all time has 3 tokens; the ledger has 15/)
  assert.strictEqual((yield* tollgateWith(environment, ["reconcile", "--repair"])).code, 0)
  assert.strictEqual(yield* counted(caller), 15)
  const without = yield* tollgateWith({ ...environment, REDIS_URL: "redis://127.0.0.1:1" }, ["reconcile"])
  failsWith(without, /^tollgate: the counters cannot be read: check REDIS_URL/)
})
