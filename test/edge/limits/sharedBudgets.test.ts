/** Budgets that several keys share, over two replicas with the same stores: those of a tenant, and those of a rotated key. */
import { assert } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { Registry } from "../../../src/admin/Registry.ts"
import { tollgateBeside } from "../../cli/inProcess.ts"
import {
  call,
  eventually,
  Fake,
  Gateway,
  hello,
  layerGateway,
  newKey,
  otherReplica
} from "../../support/Gateway.ts"
import { inWorld } from "../../support/testWith.ts"
import { answerOf, budgetOf, messageOf } from "./budgets.ts"
import { sql } from "../../support/sql.ts"

const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })

const hundred = answerOf(100)

/** A second key of the tenant. */
const secondKey = (tenant: string) =>
  Effect.flatMap(Registry, (registry) => registry.createKey({ tenant, name: "second", allowDuplicate: true }))

inWorld(layerGateway())("shared budgets", (test) => {
  test("when one key of a tenant has spent the tenant's budget, then every replica refuses its other keys and says why", function* () {
    const [fake, other] = [yield* Fake, yield* otherReplica()]
    const { prefix, secret, tenant } = yield* newKey()
    const second = yield* secondKey(tenant)
    yield* tollgateBeside("set-budget", "--tenant", tenant, "--daily", "200")
    yield* tollgateBeside("set-budget", "--key", prefix, "--monthly", "1000")
    fake.always(hundred)
    assert.deepStrictEqual(budgetOf(yield* chat(secret)), ["tenant", "day", "200", "100"])
    const elsewhere = chat(second.secret).pipe(Effect.provideService(Gateway, other))
    assert.deepStrictEqual(budgetOf(yield* elsewhere), ["tenant", "day", "200", "0"])
    const refused = yield* chat(secret)
    assert.strictEqual(refused.status, 429)
    assert.strictEqual(messageOf(refused), "the tenant's daily budget of 200 tokens is spent")
    assert.deepStrictEqual(budgetOf(refused), ["tenant", "day", "200", "0"])
    const toMidnight = 86_400 - (((yield* Clock.currentTimeMillis) / 1000) % 86_400)
    assert.approximately(Number(refused.headers.get("retry-after")), toMidnight, 2)
    assert.strictEqual(refused.headers.get("x-budget-reset"), refused.headers.get("retry-after"))

    const shown = yield* tollgateBeside("show-budget", "--tenant", tenant)
    assert.match(shown.stdout, /day\s+200\s+200\s+0/)
    yield* tollgateBeside("set-budget", "--tenant", tenant, "--daily", "none")
    const free = yield* eventually(chat(secret), ({ status }) => status === 200)
    assert.deepStrictEqual(budgetOf(free).slice(0, 2), ["key", "month"])
  })

  test("when a key is rotated, then both keys use one budget and one window, and the budget is set for both", function* () {
    const fake = yield* Fake
    const { prefix, secret } = yield* newKey({ rpm: 20 })
    yield* tollgateBeside("set-budget", "--key", prefix, "--total", "300")
    fake.always(hundred)
    yield* chat(secret)
    const registry = yield* Registry
    const next = yield* registry.rotateKey(prefix, undefined)
    const last = yield* registry.rotateKey(next.key.prefix, undefined)
    const answer = yield* chat(last.secret)
    assert.deepStrictEqual(budgetOf(answer), ["key", "total", "300", "100"])
    assert.strictEqual(answer.headers.get("x-ratelimit-remaining-requests"), "18")
    yield* chat(secret)
    const refused = yield* chat(next.secret)
    assert.strictEqual(messageOf(refused), "total budget of 300 tokens is spent")
    for (const { key } of [next, last]) {
      const shown = yield* registry.showBudgets({ key: key.prefix })
      assert.deepStrictEqual(shown.at(-1), {
        period: "total",
        budget: 300,
        extra: 0,
        spent: 300,
        state: "spent"
      })
    }
    yield* registry.changeKey(last.key.prefix, { budgetTotal: 1000 })
    const again = yield* eventually(chat(secret), ({ status }) => status === 200)
    assert.deepStrictEqual(budgetOf(again), ["key", "total", "1000", "600"])
    // Redis may lose the counter at any time: it is the sum of all keys of the account.
    const accounts = yield* sql`
          SELECT DISTINCT coalesce(budget_account, id) FROM api_keys
          WHERE prefix IN (${prefix}, ${next.key.prefix}, ${last.key.prefix})`
    assert.strictEqual(accounts.length, 1)
  })

  test("when a budget is used, then show-budget has its state, and the metrics what is left of the tenant's", function* () {
    const [fake, registry] = [yield* Fake, yield* Registry]
    const { prefix, secret, tenant } = yield* newKey()
    yield* registry.changeTenant(tenant, { budgetDaily: 1000, budgetTotal: 5000 })
    yield* registry.changeKey(prefix, { budgetTotal: 1000 })
    fake.always(hundred)
    const stateOf = Effect.map(registry.showBudgets({ key: prefix }), (states) => states.at(-1)?.state)
    const spend = (requests: number) =>
      Effect.forEach(Array.from({ length: requests }), () => chat(secret), { discard: true })
    yield* spend(7)
    assert.strictEqual(yield* stateOf, "ok")
    yield* spend(2)
    assert.strictEqual(yield* stateOf, "80%")
    yield* spend(1)
    assert.strictEqual(yield* stateOf, "spent")
    const shown = Effect.map(call("/metrics"), ({ text }) =>
      text.split("\n").filter((line) => line.includes("tenant_budget") && line.includes(`"${tenant}"`))
    )
    const left = `tollgate_tenant_budget_left_tokens{tenant="${tenant}",period="day"} 0`
    assert.deepStrictEqual(yield* eventually(shown, (lines) => lines.includes(left)), [
      `tollgate_tenant_budget_tokens{tenant="${tenant}",period="day"} 1000`,
      `tollgate_tenant_budget_tokens{tenant="${tenant}",period="total"} 5000`,
      left,
      `tollgate_tenant_budget_left_tokens{tenant="${tenant}",period="total"} 4000`
    ])
  })
})
