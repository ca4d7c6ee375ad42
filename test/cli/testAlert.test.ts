/** `tollgate test-alert`, and what `doctor` says of warnings of budgets. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { makeReceiver } from "../support/Receiver.ts"
import { ownEnvironment } from "../support/ownEnvironment.ts"
import { sql } from "../support/sql.ts"
import { testWith } from "../support/testWith.ts"
import { Admin, tollgateBeside } from "./inProcess.ts"
import { failsWith, succeeds } from "./tollgate.ts"

const test = testWith(it.live, Admin)

test("when a test is posted, then the command says what the receiver did, and fails when it was not taken", function* () {
  failsWith(yield* tollgateBeside("test-alert"), /ALERT_WEBHOOK_URL is not set here/)
  const receiver = yield* makeReceiver
  yield* ownEnvironment({ ALERT_WEBHOOK_URL: Redacted.value(receiver.url) })
  receiver.next(200, 404)
  const unsigned = yield* tollgateBeside("test-alert")
  succeeds(unsigned)
  assert.strictEqual(unsigned.stdout, "The receiver answered 200: delivered, not signed.\n")
  assert.include(receiver.posted[0]?.body, '"kind":"test"')
  assert.include(
    (yield* tollgateBeside("doctor")).stdout,
    "ALERT_WEBHOOK_URL is set without ALERT_WEBHOOK_SECRET"
  )

  yield* ownEnvironment({ ALERT_WEBHOOK_SECRET: "0123456789abcdef" })
  const refused = yield* tollgateBeside("test-alert", "--json")
  assert.strictEqual(refused.code, 1)
  assert.deepStrictEqual(JSON.parse(refused.stdout), {
    outcome: "refused",
    receiver: "answered 404"
  })
  assert.match(receiver.posted[1]?.signature ?? "", /^t=/)
  assert.notInclude((yield* tollgateBeside("doctor")).stdout, "budget warnings")
  for (const { stderr, stdout } of [unsigned, refused]) assert.notInclude(stdout + stderr, "hidden-word")
})

test("when the last warning was not delivered, then doctor says so", function* () {
  const add = (minutesAgo: number, failure: string | null) => sql`
    INSERT INTO budget_warnings (owner, tenant_id, period, begins, threshold, budget, used, tries, failure, found_at)
    VALUES (gen_random_uuid(), gen_random_uuid(), 'day', now(), 80, 10, 8, 1, ${failure}, now() - make_interval(mins => ${minutesAgo}))`
  yield* add(2, "answered 404")
  const doctor = Effect.map(tollgateBeside("doctor"), ({ stdout }) => stdout)
  assert.match(yield* doctor, /budget warnings +warning +the last one: the receiver answered 404/)
  yield* add(1, null)
  assert.notInclude(yield* doctor, "budget warnings")
})
