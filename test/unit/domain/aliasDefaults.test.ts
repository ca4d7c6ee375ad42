import { assert, it } from "@effect/vitest"
import { withDefaults } from "../../../src/domain/aliasDefaults.ts"
import { requestOf } from "../../support/permits.ts"

const defaults = { num_ctx: 32_768, think: "off", system: "Be brief." } as const
const user = { role: "user", content: "hi" }
const system = { role: "system", content: defaults.system }

it("when a request says nothing itself, then it gets the defaults of its alias, and its prompt is larger by them", () => {
  const asked = requestOf({ body: { messages: [user] } })
  const got = withDefaults(asked, defaults)
  assert.deepStrictEqual(got.body, { messages: [system, user], think: false })
  assert.strictEqual(got.options["num_ctx"], 32_768)
  assert.isTrue(got.thinkIfAble)
  // Three tokens of text, and eight of the template.
  assert.strictEqual(got.promptEstimate - asked.promptEstimate, 3 + 8)
  assert.strictEqual(got.promptBytes - asked.promptBytes, 9 + 32)
  const generated = withDefaults(requestOf({ kind: "generate", body: { prompt: "hi" } }), defaults)
  assert.deepStrictEqual(generated.body, { prompt: "hi", system: defaults.system, think: false })
  const counted = withDefaults(requestOf({ kind: "count", counted: 5, body: { messages: [user] } }), defaults)
  assert.strictEqual(counted.counted, 5 + 3 + 8)
})

it("when a request says it itself, then that wins, and NUM_CTX_CAP bounds the window of an alias", () => {
  const own = { messages: [user, { role: "system", content: "Be long." }], think: "high" }
  const asked = requestOf({ body: own, options: { num_ctx: 4096 } })
  assert.deepStrictEqual(withDefaults(asked, defaults), asked)
  assert.strictEqual(withDefaults(requestOf({ body: {} }), defaults, 8192).options["num_ctx"], 8192)
  const levelled = withDefaults(requestOf({ body: { messages: [user] } }), { think: "low" })
  assert.deepStrictEqual(levelled.body, { messages: [user], think: "low" })
})

it("when a request only loads its model, is raw or an embedding, then it gets no system text", () => {
  for (const [kind, body] of [
    ["chat", { messages: [] }],
    ["generate", { prompt: "" }],
    ["generate", { prompt: "hi", raw: true }],
    ["embed", { input: "hi" }]
  ] as const)
    assert.deepStrictEqual(withDefaults(requestOf({ kind, body }), { system: "Be brief." }).body, body)
})
