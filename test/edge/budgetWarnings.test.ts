/** Budgets are warned of beside the requests: whatever the receiver does, requests and the end of a gateway do not notice. */
import { assert } from "@effect/vitest"
import { Effect, Exit, Layer, Redacted, Scope } from "effect"
import { layerBudgetWarnings } from "../../src/admin/budgetWarnings.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { layer as layerMetrics } from "../../src/observability/Metrics.ts"
import { call, eventually, hello, layerGateway, newKey, otherReplica } from "../support/Gateway.ts"
import { makeReceiver } from "../support/Receiver.ts"
import { sql } from "../support/sql.ts"
import { inWorld } from "../support/testWith.ts"
import { comesTrue } from "../support/wait.ts"

/** Uses up the budget of a key. */
const spentKey = Effect.gen(function* () {
  const { prefix, secret, tenant } = yield* newKey()
  yield* (yield* Registry).changeKey(prefix, { budgetDaily: 20 })
  const chat = call("/api/chat", { secret, body: hello({ stream: false }) })
  yield* eventually(chat, ({ status }) => status === 429)
  return { chat, prefix, tenant }
})

inWorld(layerGateway())("a receiver of warnings", (test) => {
  test("when it hangs, then requests are served meanwhile, and the gateway does not wait for it at its end", function* () {
    const receiver = yield* makeReceiver
    receiver.next("nothing")
    const { prefix, tenant } = yield* spentKey
    const scope = yield* Scope.make()
    yield* Layer.build(layerBudgetWarnings({ url: receiver.url, secret: undefined, everyMs: 120 })).pipe(
      Scope.provide(scope),
      Effect.provide(Layer.fresh(layerMetrics))
    )
    assert.isTrue(yield* comesTrue(() => receiver.posted.length === 1))
    const other = yield* newKey()
    const { status } = yield* call("/api/chat", { secret: other.secret, body: hello() })
    assert.strictEqual(status, 200)
    // The try itself has ten seconds.
    yield* Effect.timeout(Scope.close(scope, Exit.void), "8 seconds")
    assert.deepInclude(receiver.messages()[0], { kind: "budget_spent", tenant, prefix, budget: 20 })
  })

  test("when a gateway has its address, then that gateway warns, signed", function* () {
    const receiver = yield* makeReceiver
    const { chat, prefix } = yield* spentKey
    // Budgets are compared once a minute.
    yield* sql`UPDATE budget_watch SET at = '-infinity'`
    yield* otherReplica({
      ALERT_WEBHOOK_URL: Redacted.value(receiver.url),
      ALERT_WEBHOOK_SECRET: "0123456789abcdef"
    })
    const hears = comesTrue(() => receiver.messages().some((message) => message.prefix === prefix))
    assert.isTrue(yield* hears)
    assert.match(receiver.posted[0]?.signature ?? "", /^t=\d+,v1=[0-9a-f]{64}$/)
    assert.strictEqual((yield* chat).status, 429)
  })
})
