/** `GET /api/usage`: what a key used, for whoever has the key. */
import { assert } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"
import { HttpServer } from "effect/http"
import { Registry } from "../../src/admin/Registry.ts"
import { dateNumbered, makeCalendar, TimeZone, utc } from "../../src/domain/Calendar.ts"
import { auditRow, call, eventually, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { layerInMemory, memoryKey } from "../support/inMemory.ts"
import { ask } from "../support/posting.ts"
import { sql } from "../support/sql.ts"
import { inWorld } from "../support/testWith.ts"
import { AuditMemory } from "../support/twins/Audit.ts"

const Usage = Schema.fromJsonString(
  Schema.Struct({
    timezone: Schema.String,
    since: Schema.String,
    truncated: Schema.Boolean,
    usage: Schema.Array(
      Schema.Struct({
        day: Schema.String,
        model: Schema.String,
        requests: Schema.Finite,
        tokens_in: Schema.Finite,
        tokens_out: Schema.Finite
      })
    )
  })
)

const usageOf = Effect.fnUntraced(function* (secret: string) {
  const answer = yield* call("/api/usage", { secret })
  assert.strictEqual(answer.status, 200, answer.text)
  return yield* Schema.decodeEffect(Usage)(answer.text)
})

const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })

const dateAgo = (days: number) => dateNumbered(utc.dayAt(Date.now()).number - days)

/** Rows of a key that no request made: `models` of a day, each with a token less than the one before. */
const insertUses = (prefix: string, date: string, models: number) =>
  sql`INSERT INTO usage_daily (key_id, day, model, tenant_id, requests, tokens_in, tokens_out, errors)
    SELECT id, ${date}::text::date, 'old:' || n, tenant_id, 1, ${models}::int - n, 1, 0
    FROM api_keys, generate_series(1, ${models}::int) n WHERE prefix = ${prefix}`

inWorld(layerGateway({ PLAYGROUND_ENABLED: "true" }))("the use of a key", (test) => {
  test("when a key asks, then it gets its own figures by day and model, and another key's never appear", function* () {
    const [mine, other, idle] = [yield* newKey(), yield* newKey(), yield* newKey()]
    for (const secret of [mine.secret, other.secret, other.secret])
      assert.strictEqual((yield* chat(secret)).status, 200)
    assert.strictEqual(
      (yield* call("/api/chat", { secret: mine.secret, body: hello({ model: "other" }) })).status,
      200
    )
    const use = (model: string, requests: number) => ({
      day: dateAgo(0),
      model,
      requests,
      tokens_in: 7 * requests,
      tokens_out: 3 * requests
    })
    assert.deepStrictEqual(yield* usageOf(mine.secret), {
      timezone: "UTC",
      since: dateAgo(30),
      truncated: false,
      usage: [use("m:latest", 1), use("other:latest", 1)]
    })
    assert.deepStrictEqual((yield* usageOf(other.secret)).usage, [use("m:latest", 2)])
    assert.deepStrictEqual((yield* usageOf(idle.secret)).usage, [])
  })

  test("when a key was replaced, then both have the figures of both; when one is revoked or unknown, then it gets 401", function* () {
    const registry = yield* Registry
    const old = yield* newKey()
    yield* chat(old.secret)
    const { secret } = yield* registry.rotateKey(old.prefix, undefined)
    assert.strictEqual((yield* eventually(chat(secret), ({ status }) => status === 200)).status, 200)
    const both = yield* usageOf(secret)
    assert.strictEqual(both.usage[0]?.requests, 2)
    assert.deepStrictEqual(yield* usageOf(old.secret), both)
    yield* registry.revokeKey(old.prefix)
    const ask = call("/api/usage", { secret: old.secret })
    const refused = yield* eventually(ask, ({ status }) => status === 401)
    assert.strictEqual(refused.status, 401)
    assert.notInclude(refused.text, "m:latest")
    assert.deepStrictEqual(yield* usageOf(secret), both)
    assert.strictEqual((yield* call("/api/usage")).status, 401)
    assert.strictEqual((yield* call("/api/usage", { secret: `tg_${"x".repeat(41)}` })).status, 401)
    // There is no way to name another key.
    const { secret: stranger } = yield* newKey()
    for (const query of [`?key=${old.prefix}`, `?key_id=1`, `?tenant=${old.tenant}`])
      assert.include((yield* call(`/api/usage${query}`, { secret: stranger })).text, '"usage":[]')
  })

  test("when there are more days or rows than are read, then the newest are told, and that there are more", function* () {
    const { prefix, secret } = yield* newKey()
    yield* insertUses(prefix, dateAgo(31), 1)
    yield* insertUses(prefix, dateAgo(30), 1)
    const all = yield* usageOf(secret)
    assert.deepStrictEqual([all.usage.length, all.usage[0]?.day, all.truncated], [1, dateAgo(30), false])
    yield* insertUses(prefix, dateAgo(0), 999)
    const full = yield* usageOf(secret)
    assert.deepStrictEqual([full.usage.length, full.truncated], [1000, false])
    assert.strictEqual(full.usage[0]?.model, "old:1")
    yield* insertUses(prefix, dateAgo(1), 1)
    const cut = yield* usageOf(secret)
    assert.deepStrictEqual([cut.usage.length, cut.truncated, cut.usage.at(-1)?.day], [1000, true, dateAgo(1)])
    // The books are proven after each test.
    yield* sql`DELETE FROM usage_daily WHERE model LIKE 'old:%'`
  })
})

inWorld(layerGateway({ PLAYGROUND_ENABLED: "false" }))("without the playground", (test) => {
  test("when a key asks for its use, then that is a blocked path like any other", function* () {
    const { secret } = yield* newKey()
    const [usage, other] = [yield* call("/api/usage", { secret }), yield* call("/api/nothing", { secret })]
    assert.strictEqual(usage.status, 403)
    const same = (text: string) => text.replace(/"request_id":"[^"]*"/, "")
    assert.strictEqual(same(usage.text), same(other.text))
    assert.deepInclude(yield* auditRow(usage.headers.get("x-request-id")), { status: 403, key_prefix: null })
  })
})

/** Where it is another day than in UTC, now. */
const zone = new Date().getUTCHours() >= 10 ? "Pacific/Kiritimati" : "Pacific/Pago_Pago"
const calendar = makeCalendar(zone)

const key = memoryKey()
const layerZoned = layerInMemory({ keys: [key], server: { playground: true } }).pipe(
  Layer.provide(Layer.succeed(TimeZone, calendar))
)
inWorld(layerZoned)("in another zone", (test) => {
  test("when days are counted, then they are those of TIMEZONE; when the ledger does not answer, then it is a 503, and a list goes on", function* () {
    const [{ address }, memory] = [yield* HttpServer.HttpServer, yield* AuditMemory]
    const get = (path: string) => ask(`${HttpServer.formatAddress(address)}${path}`, { secret: key.secret })
    const { since, timezone } = yield* Schema.decodeEffect(Usage)((yield* get("/api/usage")).text)
    const { number } = calendar.dayAt(Date.now())
    assert.notStrictEqual(number, utc.dayAt(Date.now()).number)
    assert.deepStrictEqual([timezone, since], [zone, dateNumbered(number - 30)])
    yield* memory.setLedgerDown(true)
    const refused = yield* get("/api/usage")
    assert.strictEqual(refused.status, 503)
    assert.include(refused.text, '"message":"service temporarily unavailable"')
    assert.strictEqual((yield* get("/api/version")).status, 200)
    const row = [...memory.tables.audit.values()].find(({ status }) => status === 503)
    assert.strictEqual(row?.detail, "gate: Budget")
  })
})
