import { assert, it } from "@effect/vitest"
import { type BudgetWarning, messageOf } from "../../../src/admin/warningMessage.ts"
import { makeCalendar, utc } from "../../../src/domain/Calendar.ts"

const berlin = makeCalendar("Europe/Berlin")

const ofKey: BudgetWarning = {
  id: "01a1fca4-0000-4000-8000-000000000000",
  scope: "key",
  tenant: "acme",
  key: "anna",
  prefix: "tg_4fJ2kQ9sX",
  user: null,
  model: null,
  period: "day",
  budget: 10_000,
  used: 8012,
  at: Date.parse("2026-10-24T13:04:05.678Z"),
  ends: "2026-10-25"
}

it("when a budget is nearly spent, then the message says whose, how far and until when, in the zone of the gateways", () => {
  assert.deepStrictEqual(messageOf(ofKey, berlin), {
    text: "Tollgate: key anna (tg_4fJ2kQ9sX) of tenant acme has used 80 % of its daily budget (8,012 of 10,000 tokens): 1,988 are left until 2026-10-25 00:00 +02:00.",
    id: ofKey.id,
    kind: "budget_nearly_spent",
    scope: "key",
    tenant: "acme",
    key: "anna",
    prefix: "tg_4fJ2kQ9sX",
    user: null,
    model: null,
    period: "day",
    budget: 10_000,
    used: 8012,
    percent: 80,
    at: "2026-10-24T15:04:05+02:00",
    resets_at: "2026-10-25T00:00:00+02:00"
  })
  // The night in which the clocks go back.
  const { resets_at } = messageOf({ ...ofKey, ends: "2026-10-26" }, berlin)
  assert.strictEqual(resets_at, "2026-10-26T00:00:00+01:00")
})

it("when a budget is spent, then the message says that its requests are refused, and until when", () => {
  const tenant = { ...ofKey, scope: "tenant", key: null, prefix: null, used: 10_300 } as const
  const { at, kind, resets_at, text } = messageOf({ ...tenant, period: "month", ends: "2026-11-01" }, utc)
  assert.strictEqual(
    text,
    "Tollgate: tenant acme has used 103 % of its monthly budget (10,300 of 10,000 tokens): its requests are refused until 2026-11-01 00:00 UTC."
  )
  assert.deepStrictEqual(
    [kind, at, resets_at],
    ["budget_spent", "2026-10-24T13:04:05Z", "2026-11-01T00:00:00Z"]
  )
  const total = messageOf({ ...tenant, period: "total", ends: null }, utc)
  assert.match(total.text, /of its total budget \(10,300 of 10,000 tokens\): its requests are refused\.$/)
  assert.isNull(total.resets_at)
  const model = { ...ofKey, scope: "model", model: "llama3.2:3b", used: 10_300 } as const
  assert.match(
    messageOf(model, utc).text,
    /^Tollgate: key anna \(tg_4fJ2kQ9sX\) of tenant acme has used 103 % of its daily budget for llama3\.2:3b \(10,300 of 10,000 tokens\): its requests for llama3\.2:3b are refused until /
  )
})

it("when a name is written for a chat, then the sentence has no mention and no link, and the field has the name", () => {
  const user = { ...ofKey, scope: "user", user: "<!channel> & [go](http://evil)" } as const
  const message = messageOf(user, utc)
  assert.include(
    message.text,
    "end user  !channel     go (http://evil) of key anna (tg_4fJ2kQ9sX) of tenant acme has used"
  )
  assert.strictEqual(message.user, user.user)
  assert.include(messageOf({ ...user, user: null }, utc).text, "end user without a name of key anna")
})
