/** Budgets are compared with the ledger and warned of once, however many gateways look, and whoever of them dies. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Logger, Redacted, References, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { type BudgetWarningsOptions, layerBudgetWarnings } from "../../../src/admin/budgetWarnings.ts"
import { layerPostgres as layerRegistry, Registry } from "../../../src/admin/Registry.ts"
import { makeCalendar, TimeZone } from "../../../src/domain/Calendar.ts"
import { hashedUser, userAccountId } from "../../../src/domain/EndUser.ts"
import { jsonLine } from "../../../src/observability/logging.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { generous } from "../../support/Gateway.ts"
import { quickHash } from "../../support/quickHash.ts"
import { makeReceiver } from "../../support/Receiver.ts"
import { sql } from "../../support/sql.ts"
import { TestPostgres } from "../../support/TestPostgres.ts"
import { testWith } from "../../support/testWith.ts"
import { comesTrue, eventually } from "../../support/wait.ts"

const world = layerRegistry({ hash: quickHash, defaults: generous }).pipe(Layer.provideMerge(TestPostgres))
const test = testWith(it.live, world)

const everyMs = 120

/** The warnings of a gateway, until it is killed; what it logs, and the failures that it counts. */
const gateway = Effect.fnUntraced(function* (
  url: Redacted.Redacted,
  options: Partial<BudgetWarningsOptions> = {}
) {
  const lines: Array<string> = []
  const ear = Logger.layer([Logger.make((entry) => void lines.push(jsonLine.log(entry)))])
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const built = yield* Layer.build(
    layerBudgetWarnings({ url, secret: undefined, everyMs, ...options }).pipe(
      Layer.provideMerge(Layer.fresh(Metrics.layer))
    )
  ).pipe(
    Scope.provide(scope),
    Effect.provide(Layer.merge(ear, Layer.succeed(References.MinimumLogLevel, "Info")))
  )
  const { exposition } = Context.get(built, Metrics.Metrics)
  const failures = Effect.map(exposition, (text) =>
    Number(/tollgate_background_failures_total\{task="budget_warnings"\} (\d+)/.exec(text)?.[1])
  )
  return { lines, failures, kill: Scope.close(scope, Exit.void) }
})

const today = "(now() AT TIME ZONE 'UTC')::date"

const newKey = Effect.fnUntraced(function* (tenant: string, name: string, more: object = {}) {
  const registry = yield* Registry
  const { key } = yield* registry.createKey({ tenant, name, ...more })
  const [row] = yield* sql<{
    readonly id: string
  }>`SELECT id::text FROM api_keys WHERE prefix = ${key.prefix}`
  return { prefix: key.prefix, id: row?.id ?? "" }
})

const spend = (prefix: string, tokens: number, day = today) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (client) => client`
      INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
      SELECT id, tenant_id, ${client.literal(day)}, 1, ${tokens}, 0 FROM api_keys WHERE prefix = ${prefix}
      ON CONFLICT (key_id, day, tenant_id) DO UPDATE SET tokens_in = ledger.tokens_in + excluded.tokens_in`
  )

/** A row of the audit, which books the use of the end user too. */
const spendAs = (prefix: string, user: string | null, account: string, tokens: number) => sql`
  INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, model,
    streamed, tokens_in, tokens_out, status, latency_ms, client_ip, end_user, user_account)
  SELECT gen_random_uuid(), now(), now(), tenant_id, id, prefix, 'POST', '/api/chat', 'm', false, ${tokens}::bigint, 0, 200, 1,
    '::1', ${user}::text, ${account}::text::uuid
  FROM api_keys WHERE prefix = ${prefix}`

/** Until all that is booked was compared, and what was found is sent or given up. */
const settled = Effect.gen(function* () {
  const [now] = yield* sql<{ readonly at: string }>`SELECT clock_timestamp()::text AS at`
  const done = yield* eventually(
    sql`SELECT FROM budget_watch WHERE at > ${now?.at ?? ""}::timestamptz
      AND NOT EXISTS (SELECT FROM budget_warnings WHERE next_try IS NOT NULL)`,
    (rows) => rows.length === 1
  )
  assert.lengthOf(done, 1)
})

test("when budgets of a key and its tenant are used, then each threshold is posted once by two gateways together", function* () {
  const [receiver, registry] = [yield* makeReceiver, yield* Registry]
  yield* registry.createTenant({ name: "acme" })
  const { prefix } = yield* newKey("acme", "anna")
  yield* registry.changeKey(prefix, { budgetDaily: 1000, budgetTotal: 1_000_000 })
  yield* registry.changeTenant("acme", { budgetWeekly: 900 })
  const gateways = [yield* gateway(receiver.url), yield* gateway(receiver.url)]
  const seen = () =>
    receiver
      .messages()
      .map(({ kind, percent, period, scope }) => `${scope} ${period} ${kind} ${percent}`)
      .toSorted()
  yield* spend(prefix, 719)
  yield* settled
  assert.deepStrictEqual(seen(), [])
  yield* spend(prefix, 81)
  yield* settled
  const first = ["key day budget_nearly_spent 80", "tenant week budget_nearly_spent 88"]
  assert.deepStrictEqual(seen(), first)
  const ofTenant = receiver.messages().find(({ scope }) => scope === "tenant")
  assert.deepInclude(ofTenant, { tenant: "acme", key: null, prefix: null, budget: 900, used: 800 })
  yield* spend(prefix, 199)
  yield* settled
  assert.deepStrictEqual(seen(), [...first, "tenant week budget_spent 111"])
  yield* spend(prefix, 1)
  yield* settled
  const all = ["key day budget_nearly_spent 80", "key day budget_spent 100", ...seen().slice(2)]
  assert.deepStrictEqual(seen(), all)
  // A correction takes tokens away, and they are used again.
  yield* sql`UPDATE ledger SET tokens_in = tokens_in - 300`
  yield* settled
  yield* spend(prefix, 300)
  yield* settled
  // A gateway that starts knows what was sent.
  for (const { kill } of gateways) yield* kill
  yield* gateway(receiver.url)
  yield* settled
  assert.deepStrictEqual(seen(), all)
})

test("when a budget is changed after its warning, then it is warned of anew only where less was known", function* () {
  const [receiver, registry] = [yield* makeReceiver, yield* Registry]
  yield* registry.createTenant({ name: "acme" })
  const { prefix } = yield* newKey("acme", "anna")
  yield* gateway(receiver.url)
  const seen = Effect.map(settled, () =>
    receiver
      .messages()
      .slice(-1)
      .map(({ budget, percent }) => `${receiver.posted.length}: ${percent} % of ${budget}`)
  )
  yield* registry.changeKey(prefix, { budgetDaily: 1000 })
  yield* spend(prefix, 850)
  assert.deepStrictEqual(yield* seen, ["1: 85 % of 1000"])
  yield* registry.changeKey(prefix, { budgetDaily: 2000 })
  assert.deepStrictEqual(yield* seen, ["1: 85 % of 1000"])
  yield* spend(prefix, 850)
  assert.deepStrictEqual(yield* seen, ["2: 85 % of 2000"])
  yield* registry.changeKey(prefix, { budgetDaily: 1000 })
  assert.deepStrictEqual(yield* seen, ["3: 170 % of 1000"])
  yield* registry.changeKey(prefix, { budgetDaily: 2000 })
  assert.deepStrictEqual(yield* seen, ["3: 170 % of 1000"])
  yield* registry.addBudget({ key: prefix }, { tokens: 1000, until: { inMs: 3_600_000 } })
  yield* spend(prefix, 600)
  assert.deepStrictEqual(yield* seen, ["3: 170 % of 1000"])
  yield* spend(prefix, 200)
  assert.deepStrictEqual(yield* seen, ["4: 83 % of 3000"])
  // The extra budget ends: the use is beyond the other one.
  yield* registry.addBudget({ key: prefix }, null)
  assert.deepStrictEqual(yield* seen, ["5: 125 % of 2000"])
})

test("when end users have budgets, then theirs are warned of, by the names that the audit has", function* () {
  const [receiver, registry] = [yield* makeReceiver, yield* Registry]
  yield* registry.createTenant({ name: "acme" })
  const open = yield* newKey("acme", "webui", { endUserHeader: "x-user", eachUserDaily: 100 })
  const hidden = yield* newKey("acme", "hidden", {
    endUserHeader: "x-user",
    eachUserDaily: 100,
    hashUsers: true
  })
  yield* registry.changeRule({ key: open.prefix }, "userRules", "ada", { daily: 50 })
  yield* registry.changeRule({ key: hidden.prefix }, "userRules", "zoe", { daily: 50 })
  const use = (key: typeof open, name: string | null, tokens: number) =>
    spendAs(key.prefix, name, userAccountId(key.id, name ?? ""), tokens)
  yield* use(open, "ada", 45)
  yield* use(open, "bob", 45)
  yield* use(open, null, 95)
  yield* use(hidden, hashedUser(hidden.id, "zoe"), 45)
  yield* gateway(receiver.url)
  const seen = Effect.map(settled, () =>
    receiver
      .messages()
      .map(({ key, percent, scope, user }) => `${scope} ${String(user)} of ${key} ${percent}`)
      .toSorted()
  )
  const zoe = hashedUser(hidden.id, "zoe")
  const found = ["user ada of webui 90", "user null of webui 95", `user ${zoe} of hidden 90`]
  assert.deepStrictEqual(yield* seen, found)
  // The rule has the hash, and the audit has the name from now on.
  yield* registry.changeKey(hidden.prefix, { hashUsers: false })
  yield* use(hidden, "zoe", 48)
  assert.deepStrictEqual(yield* seen, [...found, "user zoe of hidden 96"].toSorted())
})

test("when keys have budgets for models, their own or their tenant's, then those are warned of by the model, beside the key's", function* () {
  const [receiver, registry] = [yield* makeReceiver, yield* Registry]
  yield* registry.createTenant({
    name: "acme",
    modelRules: [
      { name: "m", daily: 100 },
      { name: "n", rpm: 5 }
    ]
  })
  const [anna, bob] = [yield* newKey("acme", "anna"), yield* newKey("acme", "bob", { budgetDaily: 100 })]
  yield* registry.changeKey(bob.prefix, { modelRules: [{ name: "m", daily: 50, rpm: 3 }] })
  const { key: next } = yield* registry.rotateKey(bob.prefix, undefined)
  const use = (prefix: string, model: string, tokens: number, day = today) =>
    Effect.flatMap(
      SqlClient.SqlClient,
      (client) => client`
        INSERT INTO usage_daily (key_id, day, model, tenant_id, requests, tokens_in, tokens_out, errors)
        SELECT id, ${client.literal(day)}, ${model}, tenant_id, 1, ${tokens}, 0, 0 FROM api_keys WHERE prefix = ${prefix}`
    )
  yield* use(anna.prefix, "m", 79)
  yield* use(anna.prefix, "m", 500, `${today} - 1`)
  yield* use(anna.prefix, "other", 500)
  // Both keys have one account, and the server's name of the model has a tag.
  yield* use(bob.prefix, "m", 20)
  yield* use(next.prefix, "m:latest", 25)
  yield* spend(bob.prefix, 85)
  yield* gateway(receiver.url)
  const seen = Effect.map(settled, () =>
    receiver
      .messages()
      .map(({ key, model, percent, scope }) => `${scope} ${String(model)} of ${key} ${percent}`)
      .toSorted()
  )
  const found = ["key null of bob 85", "model m of bob 90"]
  assert.deepStrictEqual(yield* seen, found)
  yield* use(anna.prefix, "m:latest", 1)
  assert.deepStrictEqual(yield* seen, [...found, "model m of anna 80"].toSorted())
})

test("when keys share an account, then it is warned of once, by the name of the newest that lives", function* () {
  const [receiver, registry] = [yield* makeReceiver, yield* Registry]
  yield* registry.createTenant({ name: "acme" })
  const old = yield* newKey("acme", "anna")
  yield* registry.changeKey(old.prefix, { budgetMonthly: 100, budgetTotal: 1000 })
  const { key } = yield* registry.rotateKey(old.prefix, undefined)
  yield* spend(old.prefix, 720, `${today} - 400`)
  yield* spend(old.prefix, 40)
  yield* spend(key.prefix, 45)
  yield* gateway(receiver.url)
  yield* settled
  assert.deepStrictEqual(
    receiver
      .messages()
      .map(({ period, prefix, used }) => `${period} ${prefix} ${used}`)
      .toSorted(),
    [`month ${key.prefix} 85`, `total ${key.prefix} 805`]
  )
})

test("when nobody can use a budget, then nobody is warned of it", function* () {
  const [receiver, registry] = [yield* makeReceiver, yield* Registry]
  for (const name of ["acme", "off"]) yield* registry.createTenant({ name })
  const [revoked, disabled, blocked, past, ofOff] = [
    yield* newKey("acme", "revoked"),
    yield* newKey("acme", "disabled"),
    yield* newKey("acme", "blocked"),
    yield* newKey("acme", "past"),
    yield* newKey("off", "k")
  ]
  for (const { prefix } of [revoked, disabled, past, ofOff]) {
    yield* registry.changeKey(prefix, { budgetDaily: 10 })
    yield* spend(prefix, 10, prefix === past.prefix ? `${today} - 2` : today)
  }
  yield* registry.changeKey(blocked.prefix, { budgetTotal: 0 })
  yield* registry.changeTenant("off", { budgetDaily: 10 })
  yield* registry.revokeKey(revoked.prefix)
  yield* registry.setKeyEnabled(disabled.prefix, false)
  yield* registry.setTenantEnabled("off", false)
  yield* gateway(receiver.url)
  yield* settled
  assert.deepStrictEqual(receiver.messages(), [])
  yield* registry.setKeyEnabled(disabled.prefix, true)
  yield* settled
  assert.deepStrictEqual(
    receiver.messages().map(({ key }) => key),
    ["disabled"]
  )
})

test("when a period has ended less than an hour ago, then what was used of it is still warned of", function* () {
  const [receiver, registry] = [yield* makeReceiver, yield* Registry]
  // It is twenty past midnight there.
  const now = new Date()
  const minutes = (20 - (now.getUTCHours() * 60 + now.getUTCMinutes()) + 2 * 1440 - 720) % 1440
  const ahead = minutes - 720
  const two = (count: number) => String(Math.floor(Math.abs(count))).padStart(2, "0")
  const calendar = makeCalendar(`${ahead < 0 ? "-" : "+"}${two(ahead / 60)}:${two(ahead % 60)}`)
  const midnight = calendar.dayAt(now.getTime()).start
  assert.closeTo(now.getTime() - midnight, 20 * 60_000, 61_000)
  const yesterday = calendar.dayAt(midnight - 1)
  yield* registry.createTenant({ name: "acme" })
  const [{ prefix }, before] = [yield* newKey("acme", "anna"), yield* newKey("acme", "before")]
  for (const key of [prefix, before.prefix]) yield* registry.changeKey(key, { budgetDaily: 1000 })
  yield* spend(prefix, 900, `'${yesterday.date}'::date`)
  yield* spend(before.prefix, 900, `'${yesterday.date}'::date - 1`)
  yield* Effect.provideService(gateway(receiver.url), TimeZone, calendar)
  yield* settled
  assert.deepStrictEqual(
    receiver.messages().map(({ key, resets_at }) => [key, Date.parse(resets_at ?? "")]),
    [["anna", midnight]]
  )
})

/** A key whose budget of the day is spent. */
const spentKey = Effect.gen(function* () {
  const registry = yield* Registry
  yield* registry.createTenant({ name: "acme" })
  const { prefix } = yield* newKey("acme", "anna")
  yield* registry.changeKey(prefix, { budgetDaily: 10 })
  yield* spend(prefix, 10)
})

const rowOf = sql<{ readonly tries: number; readonly sent: boolean; readonly failure: string | null }>`
  SELECT tries, sent_at IS NOT NULL AS sent, failure FROM budget_warnings`

/** Passes, for what was taken and is not sent. */
const halfAMinute = sql`
  UPDATE budget_warnings SET next_try = next_try - interval '30 seconds' WHERE tries > 0 AND next_try IS NOT NULL`

test("when a gateway dies with a warning that it took, then another sends it", function* () {
  const receiver = yield* makeReceiver
  receiver.next("nothing")
  yield* spentKey
  const first = yield* gateway(receiver.url)
  assert.isTrue(yield* comesTrue(() => receiver.posted.length === 1))
  // Nobody else takes it meanwhile.
  assert.lengthOf(yield* sql`SELECT FROM budget_warnings WHERE next_try > now() + interval '15 seconds'`, 1)
  // It does not wait for the receiver, which would take ten seconds.
  yield* Effect.timeout(first.kill, "8 seconds")
  assert.deepStrictEqual(
    (yield* rowOf).map((row) => ({ ...row })),
    [{ tries: 1, sent: false, failure: null }]
  )
  yield* halfAMinute
  yield* gateway(receiver.url)
  yield* settled
  const [one, two, ...more] = receiver.messages()
  assert.deepStrictEqual([one?.id, more], [two?.id, []])
  assert.deepStrictEqual(
    (yield* rowOf).map((row) => ({ ...row })),
    [{ tries: 2, sent: true, failure: null }]
  )
})

test("when the receiver fails for a while, then the warning is sent when it is back, and it was told once each time", function* () {
  const receiver = yield* makeReceiver
  receiver.next(503, 429)
  yield* spentKey
  const { failures, lines } = yield* gateway(receiver.url)
  yield* settled
  assert.deepStrictEqual(
    (yield* rowOf).map((row) => ({ ...row })),
    [{ tries: 3, sent: true, failure: null }]
  )
  assert.strictEqual(yield* failures, 2)
  assert.lengthOf(lines, 2)
  assert.match(lines[0] ?? "", /budget warning not delivered.*"outcome":"failed","what":"answered 503"/)
})

test("when the receiver refuses, or fails for too long, then it is given up, and nothing of its address is told", function* () {
  const [refusing, failing] = [yield* makeReceiver, yield* makeReceiver]
  refusing.next(404)
  failing.next(...Array.from({ length: 20 }, () => 500))
  yield* spentKey
  const first = yield* gateway(refusing.url)
  yield* settled
  assert.lengthOf(refusing.posted, 1)
  yield* first.kill
  yield* sql`DELETE FROM budget_warnings`
  const second = yield* gateway(failing.url, { everyMs: 20 })
  yield* settled
  assert.lengthOf(failing.posted, 8)
  assert.deepStrictEqual(
    (yield* rowOf).map((row) => ({ ...row })),
    [{ tries: 8, sent: false, failure: "answered 500" }]
  )
  assert.deepStrictEqual([yield* first.failures, yield* second.failures], [1, 8])
  const told = [...first.lines, ...second.lines].join("\n")
  assert.include(told, '"what":"answered 404"')
  assert.notInclude(told, "hidden-word")
  assert.notInclude(told, Redacted.value(failing.url).slice(7, 20))
})

test("when more budgets are spent than may wait, then the others are warned of later", function* () {
  const [receiver, registry] = [yield* makeReceiver, yield* Registry]
  receiver.next("nothing")
  yield* registry.createTenant({ name: "many" })
  yield* sql`
    INSERT INTO api_keys (tenant_id, name, prefix, hash, budget_daily)
    SELECT id, 'k' || n, 'tg_' || lpad(n::text, 9, '0'), '$argon2id$', 10 FROM tenants, generate_series(1, 1005) n`
  yield* sql`
    INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
    SELECT id, tenant_id, (now() AT TIME ZONE 'UTC')::date, 1, 10, 0 FROM api_keys`
  const first = yield* gateway(receiver.url)
  assert.isTrue(yield* comesTrue(() => receiver.posted.length === 1))
  const waiting = sql<{ readonly count: number }>`
    SELECT count(*)::int AS count FROM budget_warnings WHERE next_try IS NOT NULL`
  assert.strictEqual((yield* waiting)[0]?.count, 1000)
  yield* first.kill
  yield* halfAMinute
  yield* gateway(receiver.url)
  yield* gateway(receiver.url)
  assert.isTrue(
    yield* comesTrue(() => new Set(receiver.messages().map(({ prefix }) => prefix)).size === 1005)
  )
  yield* settled
  assert.lengthOf(receiver.posted, 1006)
})

test("when a warning is old, then its row is deleted", function* () {
  const receiver = yield* makeReceiver
  yield* spentKey
  yield* gateway(receiver.url)
  yield* settled
  yield* sql`UPDATE budget_warnings SET begins = begins - 40, ends = ends - 40`
  yield* settled
  assert.lengthOf(yield* rowOf, 1)
  assert.lengthOf(receiver.posted, 2)
})
