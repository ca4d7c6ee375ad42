import { assert, it } from "@effect/vitest"
import { callerSettings, userRuleOf } from "../../../src/domain/Caller.ts"
import { newKey, newTenant } from "../../../src/domain/attributes.ts"
import { hashedUser } from "../../../src/domain/EndUser.ts"

const tenant = { ...newTenant, rpm: 60, tpm: 1000, concurrent: 4 }
const rulesOf = (key: Partial<typeof newKey>) => {
  const { users } = callerSettings({ ...newKey, ...key }, tenant, 30)
  return (name?: string) =>
    userRuleOf({ accountId: "account", ...(users === undefined ? {} : { users }) }, name)
}

it("when a key has rules of single users, then each value that they lack is that of each user, else the key's", () => {
  const ruleOf = rulesOf({
    tpm: 500,
    eachUserRpm: 10,
    eachUserDaily: 100,
    userRules: [
      { name: "ada", rpm: 20, monthly: 5000 },
      { name: "bob", blocked: true }
    ]
  })
  const each = { limits: { rpm: 10, tpm: 500, concurrent: 4 }, budgets: { day: 100 } }
  assert.deepStrictEqual(ruleOf("ada"), {
    blocked: false,
    limits: { limits: { ...each.limits, rpm: 20 }, budgets: { day: 100, month: 5000 } }
  })
  assert.deepStrictEqual(ruleOf("bob"), { blocked: true, limits: each })
  assert.deepStrictEqual(ruleOf("zoe"), { blocked: false, limits: each })
  assert.deepStrictEqual(ruleOf(), ruleOf("zoe"))
})

it("when only single users have rules, then others have no account, and a block alone makes none", () => {
  const ruleOf = rulesOf({
    userRules: [
      { name: "ada", concurrent: 1 },
      { name: hashedUser("account", "bob"), blocked: true }
    ]
  })
  assert.deepStrictEqual(ruleOf("zoe"), { blocked: false })
  assert.deepStrictEqual(ruleOf("ada")?.limits?.limits, { rpm: 60, tpm: 1000, concurrent: 1 })
  // The rule was made while the key stored hashes.
  assert.deepStrictEqual(ruleOf("bob"), { blocked: true })
  assert.isUndefined(rulesOf({})("ada"))
})

it("when key and tenant have limits for models, then a value of the key comes first, then the tenant's, then those of all models", () => {
  const { modelLimits } = callerSettings(
    { ...newKey, tpm: 500, modelRules: [{ name: "a:1", rpm: 5 }, { name: "b" }] },
    { ...tenant, modelRules: [{ name: "a:1", rpm: 9, daily: 100 }] },
    30
  )
  const all = { rpm: 60, tpm: 500, concurrent: 4 }
  assert.deepStrictEqual(
    [...(modelLimits ?? [])],
    [
      ["a:1", { name: "a:1", limits: { ...all, rpm: 5 }, budgets: { day: 100 } }],
      ["b", { name: "b", limits: all, budgets: {} }]
    ]
  )
  assert.isFalse("modelLimits" in callerSettings(newKey, tenant, 30))
})
