/**
 * The twin of Postgres of the simulation beside a real one. Audit, ledger, recovery and key store send the same random commands to
 * both, and must get the same answers.
 */
import { randomBytes, randomUUIDv7 } from "node:crypto"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert } from "@effect/vitest"
import { Cause, Effect, type Exit, Layer, References, Result, Schema } from "effect"
import { utc } from "../../src/domain/Calendar.ts"
import { SqlClient } from "effect/sql"
import * as fc from "fast-check"
import { Process, Simulation } from "../support/seeded/Simulation.ts"
import { Postgres } from "../support/seeded/Postgres.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { correctAudit } from "../../src/audit/corrections.ts"
import { auditRow, completionRow, progressRow } from "../../src/audit/rows.ts"
import { insertIntents, renewIntents, writeRows } from "../../src/audit/statements.ts"
import { userAccountId } from "../../src/domain/EndUser.ts"
import { outcomes } from "../../src/domain/Outcome.ts"
import { KeyAttributes, TenantAttributes } from "../../src/domain/attributes.ts"
import { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { layerPostgres as layerKeyStore } from "../../src/gates/keys/postgres.ts"
import { Ledger } from "../../src/gates/limits/Ledger.ts"
import { MemoryMeter } from "../../src/gates/meter/memory/MemoryMeter.ts"
import { makeMemory } from "../../src/gates/meter/memory/layer.ts"
import { readExpired } from "../../src/ledger/deadRequests.ts"
import { readAccounts } from "../../src/ledger/comparison.ts"
import { readTotals } from "../../src/ledger/totals.ts"
import { settleExpired } from "../../src/ledger/expiredHolds.ts"
import { endExpired } from "../../src/audit/statements.ts"
import { layerPostgres as layerLedger } from "../../src/ledger/postgres.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { intentRowOf } from "../support/permits.ts"
import { callerOf, endOf, intentOf, noon, usageOf } from "../support/records.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { inWorld } from "../support/testWith.ts"

const day = 86_400_000
const requests = 8

const step = fc.record({
  verb: fc.constantFrom(
    ...(["open", "open", "renew", "close", "refuse", "correct", "late", "recover", "settle"] as const),
    ...(["limit", "budget", "rotate", "revoke", "verify"] as const)
  ),
  which: fc.uniqueArray(fc.nat({ max: requests - 1 }), { minLength: 1, maxLength: 3 }),
  tokens: fc.nat({ max: 100 }),
  isExpired: fc.boolean()
})
type Step = typeof step extends fc.Arbitrary<infer A> ? A : never

const StoredKeys = Schema.Array(
  Schema.Struct({
    id: Schema.String,
    prefix: Schema.String,
    secret: Schema.String,
    tenantId: Schema.String,
    account: Schema.String
  })
)
const settingsOfKey = Schema.decodeUnknownEffect(Schema.toType(KeyAttributes))
const settingsOfTenant = Schema.decodeUnknownEffect(Schema.toType(TenantAttributes))

/** What a store answers, in an order and without what only one of them knows. */
const plain = (exit: Exit.Exit<unknown, unknown>): unknown =>
  exit._tag === "Success" ? exit.value : Cause.squash(exit.cause)
const inOrder = <A>(list: ReadonlyArray<A>): ReadonlyArray<A> =>
  list.toSorted((one, two) => (JSON.stringify(one) < JSON.stringify(two) ? -1 : 1))

/** Verifies a key by a store that knows nothing yet. */
const verify = (secret: string) =>
  Effect.gen(function* () {
    const found = yield* Effect.result((yield* KeyStore).verify(secret))
    return Result.isSuccess(found) ? found.success.facts.caller : found.failure._tag
  }).pipe(
    Effect.provide(
      Layer.fresh(
        layerKeyStore({
          namespace: "tg_",
          secretCheck: {
            decoyHash: Effect.succeed("nobody's"),
            verify: (hash, tried) => Effect.succeed(hash.endsWith(tried))
          }
        })
      )
    )
  )

/** What would be ended of requests whose lease has ended, and how. */
const settle = Effect.fnUntraced(function* (group: string, key: string, ids: ReadonlyArray<string>) {
  const pg = yield* PgClient.PgClient
  const meter = makeMemory(new MemoryMeter({ leaseS: 6, queueMaxWaitMs: 0 }), () => 0)
  const done: Array<string> = []
  const note = (what: string) => Effect.sync(() => void done.push(what))
  const noted: typeof meter = {
    ...meter,
    cancel: (one) => Effect.andThen(note(`cancel ${one.id}`), meter.cancel(one)),
    settle: (one, used) => Effect.andThen(note(`settle ${one.id} ${used}`), meter.settle(one, used))
  }
  yield* settleExpired(pg, noted, { group, key }, ids, noon)
  return inOrder(done)
})

const play = Effect.fnUntraced(function* (script: ReadonlyArray<Step>) {
  const registry = yield* Registry
  const sql = yield* SqlClient.SqlClient
  const simulation = new Simulation(1, noon)
  const [twin, gateway] = [new Postgres(simulation), new Process(simulation, "gateway", 0)]
  const metrics = yield* Metrics.Metrics
  const live = yield* Effect.context<PgClient.PgClient>()
  let told = ""

  /** Asks both. */
  const ask = Effect.fnUntraced(function* <A, E>(
    work: Effect.Effect<A, E, PgClient.PgClient | Metrics.Metrics>
  ) {
    const known = work.pipe(
      Effect.provideService(Metrics.Metrics, metrics),
      Effect.provideService(References.MinimumLogLevel, "Error")
    )
    const real = plain(yield* Effect.exit(Effect.provideContext(known, live)))
    const ends: Array<Exit.Exit<A, E>> = []
    const fiber = Effect.runForkWith(gateway.services)(
      Effect.provideServiceEffect(known, PgClient.PgClient, twin.clientOf(gateway))
    )
    fiber.addObserver((end) => void ends.push(end))
    while (ends.length === 0 && simulation.advance());
    assert.deepStrictEqual(ends.map(plain), [real], told)
  })
  const withPg = <A, E>(work: (pg: PgClient.PgClient) => Effect.Effect<A, E>) =>
    ask(Effect.flatMap(PgClient.PgClient, work))

  const tenant = `t${randomBytes(6).toString("hex")}`
  const secrets: Array<string> = []
  yield* registry.createTenant({ name: tenant, rpm: 60, tpm: 1000, concurrent: 4 })
  for (const name of ["one", "two"]) secrets.push((yield* registry.createKey({ tenant, name })).secret)
  /** Gives the twin what administrators did. */
  const mirror = Effect.gen(function* () {
    const rows = yield* Schema.decodeUnknownEffect(StoredKeys)(
      yield* sql`SELECT k.id::text, k.prefix, k.hash AS secret, k.tenant_id::text AS "tenantId",
          coalesce(k.budget_account, k.id)::text AS account
        FROM api_keys k JOIN tenants t ON t.id = k.tenant_id WHERE t.name = ${tenant} ORDER BY k.created_at, k.id`
    )
    const id = rows[0]?.tenantId ?? ""
    twin.tenants.set(id, {
      id,
      name: tenant,
      settings: yield* settingsOfTenant(yield* registry.showTenant(tenant))
    })
    for (const row of rows)
      twin.keys.set(row.prefix, {
        ...row,
        settings: yield* settingsOfKey(yield* registry.showKey(row.prefix))
      })
    return rows
  })
  const keys = yield* mirror
  const intents = Array.from({ length: requests }, (_, n) => {
    const { id = "", tenantId = "" } = keys[n % keys.length] ?? {}
    return intentOf({
      caller: callerOf(id, tenantId),
      requestId: randomUUIDv7(),
      ...(n % 3 === 1 ? { user: userAccountId(id, "ann") } : {}),
      arrivedAt: n % 3 === 0 ? noon - day : noon,
      admittedAt: n % 4 === 3 ? noon - 30 * day : noon
    })
  })
  const own = new Set(intents.map(({ arrival }) => arrival.requestId))
  const group = keys[0]?.tenantId ?? ""

  for (const [i, { isExpired, tokens, verb, which }] of script.entries()) {
    told = `step ${i} of ${JSON.stringify(script)}`
    const some = which.flatMap((n) => intents[n] ?? [])
    const leaseS = isExpired ? -1 : 30
    const ends = some.map((intent) =>
      completionRow(
        endOf(intent, usageOf(tokens, 1)),
        utc,
        new Date(intent.reservation.admittedAt).toISOString()
      )
    )
    const refusals = some.map((intent) => auditRow(endOf(intent, usageOf(0, 0), { status: 429 }), utc))
    const late = ends.map((row) => ({ ...row, status: 503, error_type: outcomes.unavailable.type }))
    const [first = 0] = which
    const secret = secrets[first % secrets.length] ?? ""
    const prefix = secret.slice(0, keys[0]?.prefix.length)
    switch (verb) {
      case "open":
        yield* withPg((pg) => insertIntents(pg, leaseS)(some.map(intentRowOf)))
        break
      case "renew": {
        const rows = some.map(({ arrival }) =>
          progressRow(arrival.requestId, { ...usageOf(tokens, 2 * tokens), held: tokens })
        )
        yield* withPg((pg) => Effect.map(renewIntents(pg, leaseS)(rows), inOrder))
        break
      }
      case "close":
        yield* withPg((pg) => Effect.map(writeRows(pg)(ends), inOrder))
        break
      case "refuse":
        yield* withPg((pg) => Effect.map(writeRows(pg)(refusals), inOrder))
        break
      case "correct":
      case "late":
        yield* withPg((pg) => Effect.map(correctAudit(pg)(verb === "late" ? late : ends), inOrder))
        break
      case "recover":
        for (const { arrival } of some) yield* withPg((pg) => endExpired(pg, arrival.requestId))
        // Other runs left intents too.
        yield* withPg((pg) => Effect.map(readExpired(pg, []), (ids) => ids.filter((id) => own.has(id))))
        break
      case "settle":
        yield* ask(
          settle(
            group,
            group,
            some.map(({ arrival }) => arrival.requestId)
          )
        )
        break
      case "limit":
        yield* registry.changeTenant(tenant, { rpm: 1 + tokens, concurrent: 1 + first })
        yield* mirror
        break
      case "budget":
        yield* registry.changeKey(prefix, {
          budgetDaily: isExpired ? null : tokens,
          budgetTotal: 1000 + tokens
        })
        yield* mirror
        break
      case "rotate":
        secrets.push((yield* registry.rotateKey(prefix, undefined)).secret)
        yield* mirror
        break
      case "revoke":
        yield* registry.revokeKey(prefix)
        twin.revoke(prefix)
        break
      case "verify":
        yield* ask(verify(isExpired ? `${secret.slice(0, -1)}-` : secret))
    }
    for (const at of [noon, noon - 30 * day]) {
      const keysOfAll = [...new Set([...twin.keys.values()].map(({ account }) => account))].toSorted()
      const accounts = keysOfAll.flatMap((key) => [
        { group, key },
        { group, key, user: userAccountId(key, "ann") },
        { group, key, model: "m" }
      ])
      yield* withPg((pg) =>
        Effect.map(readTotals(pg, [{ group }, ...accounts], utc.dayAt(at)), (truths) => inOrder([...truths]))
      )
      for (const owner of [{ group }, ...accounts])
        yield* ask(
          Effect.provide(
            Effect.flatMap(Ledger, (ledger) => ledger.spent(owner, at, "total")),
            Layer.fresh(layerLedger)
          )
        )
    }
    yield* withPg((pg) => Effect.map(readAccounts(pg, group), inOrder))
  }
})

const world = layerRegistry({
  defaults: { rpm: 60, tpm: 1000, concurrent: 4 },
  hash: (secret) => Promise.resolve(`$argon2id$${secret}`)
}).pipe(Layer.provideMerge(TestPostgres), Layer.provideMerge(Layer.fresh(Metrics.layer)))

inWorld(world)("The twin of Postgres at random", (test) => {
  test("when it is asked what a real one is asked, then it has the same answers", function* () {
    const context = yield* Effect.context<
      PgClient.PgClient | SqlClient.SqlClient | Registry | Metrics.Metrics
    >()
    yield* Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 24 }), (script) =>
          Effect.runPromiseWith(context)(play(script))
        ),
        { numRuns: 12 }
      )
    )
  })
})
