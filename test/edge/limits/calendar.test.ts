/**
 * Periods end at midnight of TIMEZONE, wherever the host is and whatever its clock says: a request belongs to the day and month
 * in which it was admitted, by the clock of the counters.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert } from "@effect/vitest"
import { Clock, Effect, Fiber, Layer, Result } from "effect"
import { HttpServer } from "effect/http"
import { layerApp } from "../../../src/App.ts"
import { layerLogging } from "../../../src/observability/logging.ts"
import { makeCalendar, TimeZone, utc } from "../../../src/domain/Calendar.ts"
import { compareWithAudit } from "../../../src/ledger/audited.ts"
import { Records } from "../../../src/admin/records/Records.ts"
import { layerPostgres as layerRegistry, Registry } from "../../../src/admin/Registry.ts"
import { readSettings } from "../../../src/Settings.ts"
import { fake as wire } from "../../support/FakeBackend.ts"
import {
  call,
  eventually,
  Fake,
  Gateway,
  hello,
  layerFake,
  layerGateway,
  newKey
} from "../../support/Gateway.ts"
import { ownEnvironment } from "../../support/ownEnvironment.ts"
import { layerTestPostgres } from "../../support/TestPostgres.ts"
import { quickHash } from "../../support/quickHash.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

/** A clock of which only the time of day can be set: waiting takes as long as ever. */
const clockAt = (now: (real: Clock.Clock) => number) =>
  Layer.effect(
    Clock.Clock,
    Effect.map(Clock.Clock, (real): Clock.Clock => ({
      currentTimeMillisUnsafe: () => now(real),
      currentTimeMillis: Effect.sync(() => now(real)),
      currentTimeNanosUnsafe: () => BigInt(now(real)) * 1_000_000n,
      currentTimeNanos: Effect.sync(() => BigInt(now(real)) * 1_000_000n),
      monotonicTimeNanosUnsafe: () => real.monotonicTimeNanosUnsafe(),
      monotonicTimeNanos: real.monotonicTimeNanos,
      sleep: (duration) => real.sleep(duration)
    }))
  )

const ledgerOf = Effect.fnUntraced(function* (prefix: string) {
  const rows = yield* sql<{ readonly day: string; readonly tokens: number }>`
    SELECT day::text, (tokens_in + tokens_out)::float8 AS tokens FROM ledger JOIN api_keys k ON k.id = key_id
    WHERE k.prefix = ${prefix} ORDER BY day`
  return rows.map(({ day, tokens }) => [day, tokens] as const)
})

const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })

/** One process with its own counters, so that their clock can be set: the host's. */
const state = { now: 0 }
const embeddedIn = (timezone: string) =>
  Layer.unwrap(
    Effect.map(Fake, ({ url }) => {
      const backendUrl = new URL(url)
      const settings = {
        ...Result.getOrThrow(
          readSettings({ PORT: "0", LOG_LEVEL: "fatal", MODEL_DISCOVERY_REFRESH_S: "1", TIMEZONE: timezone })
        ),
        backendUrl
      }
      return Layer.effect(
        Gateway,
        Effect.map(HttpServer.HttpServer, ({ address }) => ({
          url: HttpServer.formatAddress(address),
          settings
        }))
      ).pipe(Layer.provide(layerApp(settings, backendUrl)), Layer.provide(layerLogging(settings)))
    })
  ).pipe(Layer.provide(clockAt(() => state.now)))

const layerAdmin = layerRegistry({
  namespace: "tg_",
  hash: quickHash,
  defaults: { rpm: 60, tpm: 100_000, concurrent: 4 }
})

const oneProcess = (timezone = "UTC") =>
  Layer.fresh(embeddedIn(timezone)).pipe(
    Layer.provideMerge(
      Layer.mergeAll(Layer.fresh(layerAdmin), Records.layer).pipe(
        Layer.provide(Layer.succeed(TimeZone, makeCalendar(timezone)))
      )
    ),
    Layer.provideMerge(Layer.fresh(layerFake)),
    Layer.provideMerge(layerTestPostgres())
  )

/** The last day of a month, which ends here in the night the clocks go back. `test/unit/domain/Calendar.test.ts` has the others. */
const [zone, before, after] = ["America/New_York", "2026-10-31", "2026-11-01"]

const zoned = Layer.effectDiscard(ownEnvironment({ TZ: zone }))

inWorld(oneProcess().pipe(Layer.provideMerge(zoned)))(`a host in ${zone}`, (test) => {
  test(`when a request is admitted at 23:59:59.9 on ${before}, then it is charged to that day, though it ends on ${after}`, function* () {
    const [backend, registry] = [yield* Fake, yield* Registry]
    assert.strictEqual(Intl.DateTimeFormat().resolvedOptions().timeZone, zone)
    state.now = Date.parse(`${before}T23:59:59.900Z`)
    const { secret, prefix } = yield* newKey({ concurrent: 2 })
    yield* registry.changeKey(prefix, { budgetDaily: 50, budgetMonthly: 60, budgetTotal: 1000 })
    // The list of models is from another day: it has to be asked for again.
    const listed = call("/api/tags", { secret })
    yield* eventually(listed, ({ text }) => text.includes('"m:latest"'))
    backend.script({
      does: "stream",
      lines: [
        ...Array.from({ length: 6 }, () => wire.chat("x")),
        wire.done("chat", { eval_count: 6, prompt_eval_count: 4 })
      ],
      gapMs: 50
    })
    const arrived = backend.requests.length
    const stream = yield* Effect.forkChild(call("/api/chat", { secret, body: hello() }), {
      startImmediately: true
    })
    yield* backend.until(() => backend.requests.length > arrived)
    state.now = Date.parse(`${after}T00:00:00.000Z`)
    assert.strictEqual((yield* Fiber.join(stream)).status, 200)
    assert.deepStrictEqual(yield* ledgerOf(prefix), [[before, 10]])

    // Nothing of the new day is spent, and of a new month neither.
    const peek = yield* call("/api/version", { secret })
    assert.deepStrictEqual(
      [peek.headers.get("x-budget-period"), peek.headers.get("x-budget-tokens-remaining")],
      ["day", "50"]
    )
    for (let i = 0; i < 5; i++) assert.strictEqual((yield* chat(secret)).status, 200)
    const [yesterday, today] = yield* ledgerOf(prefix)
    assert.deepStrictEqual([yesterday, today?.[0]], [[before, 10], after])
    // The last one was cut to what was left.
    assert.isAbove(today?.[1] ?? 0, 40)
    let spent = yield* chat(secret)
    for (let i = 0; i < 5 && spent.status === 200; i++) spent = yield* chat(secret)
    assert.strictEqual(spent.status, 429)
    const wait = (utc.dayAt(state.now).ends.day - state.now) / 1000
    assert.strictEqual(spent.headers.get("retry-after"), String(wait))
  })
})

/** Midnight is at 18:15 UTC. */
const kathmandu = makeCalendar("Asia/Kathmandu")

inWorld(oneProcess(kathmandu.zone))("gateways in Kathmandu", (test) => {
  test("when a local day ends, then budgets begin anew, and all books have the local days", function* () {
    const [backend, pg, registry] = [yield* Fake, yield* PgClient.PgClient, yield* Registry]
    // The last one: ids of requests have the time of the host.
    const [last, first] = [-1, 0].map((days) =>
      kathmandu.dayNumbered(kathmandu.dayAt(Date.now()).number + days)
    )
    const midnight = first?.start ?? 0
    const [yesterday, today] = [last?.date ?? "", first?.date ?? ""]
    state.now = midnight - 60_000
    const { prefix, secret, tenant } = yield* newKey({ concurrent: 2 })
    yield* registry.changeKey(prefix, { budgetDaily: 20, budgetWeekly: 900, budgetMonthly: 1000 })
    yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes('"m:latest"'))
    backend.script(wire.atOnce())
    const spend = Effect.fnUntraced(function* () {
      let answer = yield* chat(secret)
      for (let n = 0; n < 9 && answer.status === 200; n += 1) answer = yield* chat(secret)
      return [answer.status, answer.headers.get("x-budget-period"), answer.headers.get("retry-after")]
    })
    assert.deepStrictEqual(yield* spend(), [429, "day", "60"])
    state.now = midnight
    const [fresh] = [yield* chat(secret)]
    assert.deepStrictEqual(
      [fresh.status, fresh.headers.get("x-budget-period"), fresh.headers.get("x-budget-reset")],
      [200, "day", "86400"]
    )
    const days = yield* ledgerOf(prefix)
    assert.deepStrictEqual(
      days.map(([day]) => day),
      [yesterday, today]
    )
    const rows = yield* sql<{ readonly day: string }>`
      SELECT DISTINCT day::text AS day FROM audit_log WHERE key_prefix = ${prefix} AND admitted_at IS NOT NULL ORDER BY 1`
    assert.deepStrictEqual(
      rows.map(({ day }) => day),
      [yesterday, today]
    )
    const report = yield* (yield* Records).report({
      by: "day",
      tenant,
      top: 10,
      since: { day: yesterday },
      until: { day: today }
    })
    assert.deepStrictEqual(
      report.rows.map(({ name, tokensIn, tokensOut }) => [name, tokensIn + tokensOut]),
      days.map(([day, tokens]) => [day, tokens])
    )
    const compared = yield* compareWithAudit(
      pg,
      "ledger",
      { from: yesterday, to: first?.dates.day.to ?? "" },
      9
    )
    assert.deepStrictEqual([compared.differing, compared.compared], [0, 2])
  })

  test("when a key has more budget until tomorrow, then it goes on beyond its budget, and no further when that has ended", function* () {
    const [backend, registry] = [yield* Fake, yield* Registry]
    const begin = kathmandu.instantOf("2026-06-10T12:00")
    state.now = begin
    const { prefix, secret } = yield* newKey({ concurrent: 2 })
    yield* registry.changeKey(prefix, { budgetMonthly: 20 })
    backend.script(wire.atOnce())
    const spend = Effect.fnUntraced(function* () {
      let [answer, served] = [yield* chat(secret), 0]
      for (; served < 20 && answer.status === 200; served += 1) answer = yield* chat(secret)
      return { served, message: answer.text }
    })
    const first = yield* spend()
    assert.include(first.message, "monthly budget of 20 tokens is spent")
    const added = yield* registry.addBudget(
      { key: prefix },
      {
        tokens: 40,
        until: { at: new Date(begin + 3_600_000_000_000) }
      }
    )
    assert.strictEqual(added?.tokens, 40)
    const more = yield* eventually(spend(), ({ served }) => served > 0)
    assert.isAtLeast(more.served, 3)
    assert.include(more.message, "monthly budget of 60 tokens is spent")
    const month = (yield* registry.showBudgets({ key: prefix })).find(({ period }) => period === "month")
    assert.isAtMost(month?.spent ?? 0, 61)
  })
})

for (const hours of [26, -26]) {
  inWorld(
    layerGateway().pipe(Layer.provide(clockAt((real) => real.currentTimeMillisUnsafe() + hours * 3_600_000)))
  )(`a host whose clock is ${hours} h off`, (test) => {
    test("when host and stores disagree about the day, then it charges, refuses and shows by the day of the stores", function* () {
      const registry = yield* Registry
      const { secret, prefix, tenant } = yield* newKey({ concurrent: 1 })
      // The second finds just as much left as it costs, and keeps to the one token that its prompt leaves it.
      const [fake, last] = [yield* Fake, wire.done("chat", { prompt_eval_count: 9, eval_count: 1 })]
      fake.script(wire.atOnce(), { does: "stream", lines: [wire.chat("Hello"), last] })
      yield* registry.changeKey(prefix, { budgetDaily: 20, budgetMonthly: 1000 })
      for (const left of ["10", "0"]) {
        const answer = yield* eventually(chat(secret), ({ status }) => status === 200)
        assert.strictEqual(answer.headers.get("x-budget-tokens-remaining"), left)
      }
      const refused = yield* chat(secret)
      assert.strictEqual(refused.status, 429)
      const now = Date.now()
      const wait = (utc.dayAt(now).ends.day - now) / 1000
      assert.closeTo(Number(refused.headers.get("retry-after")), wait, 5)
      const days = yield* sql<{ readonly off: number }>`
          SELECT day - (now() AT TIME ZONE 'UTC')::date AS off FROM ledger JOIN api_keys k ON k.id = key_id
          WHERE k.prefix = ${prefix}`
      assert.deepStrictEqual(
        days.map(({ off }) => Number(off)),
        [0]
      )
      assert.deepInclude(yield* registry.usage(tenant, "day"), {
        requests: 2,
        tokensIn: 16,
        tokensOut: 4
      })
      const rows = yield* sql<{ readonly late: number; readonly arrived: number }>`
          SELECT extract(epoch FROM now() - admitted_at)::float8 AS late,
            extract(epoch FROM arrived_at - now())::float8 / 3600 AS arrived
          FROM audit_log WHERE key_prefix = ${prefix} AND status = 200`
      for (const { late, arrived } of rows) {
        assert.isBelow(Math.abs(late), 30)
        // What the host took for the time is what it says, and decides nothing.
        assert.closeTo(arrived, hours, 0.1)
      }
    })
  })
}
