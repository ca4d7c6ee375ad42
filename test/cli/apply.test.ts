/** `export` and `apply`: tenants and settings of keys in a file. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { prefixOf } from "../../src/domain/Key.ts"
import { Admin, fileOf, tollgateHere } from "./inProcess.ts"
import { failsWith, succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"

const applyText = (text: string, ...more: ReadonlyArray<string>) =>
  tollgateHere("apply", "-f", fileOf(text), ...more)

const exported = Effect.map(tollgateHere("export"), (ran) => {
  succeeds(ran)
  return ran.stdout
})

const oneTenant = Effect.gen(function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "acme"))
  const secret = (yield* tollgateHere("create-key", "--tenant", "acme", "--name", "ci")).stdout.trim()
  return { secret, prefix: prefixOf(secret) }
})

const wanted = (prefix: string) => `
version: 1
tenants:
  - name: acme
    rpm: 300
    weight: 3
    models: [llama3.2:1b]
    aliases: { fast: "llama3.2:1b", b: "llama3.2:1b", "a:latest": "llama3.2:1b" }
    budgets: { monthly: 70000 }
    keys:
      - prefix: ${prefix}
        name: ci
        tpm: 5000
        priority: batch
        budgets: { daily: 1000, total: null }
        end_user_header: X-User
        prompt_log: 7
  - name: new
    rpm: 5
    budgets: { daily: 50 }
    models: all
    enabled: false
`

const test = testWith(it.effect, Admin)

test("when a file is applied, then a dry run says the same and changes nothing, and a second one has nothing to do", function* () {
  const { prefix, secret } = yield* oneTenant
  const before = yield* exported
  assert.notInclude(before, secret.slice(12))
  const dry = yield* applyText(wanted(prefix), "--dry-run")
  succeeds(dry)
  for (const line of [
    "  tenant acme: rpm 60 -> 300",
    '  tenant acme: models [] -> ["llama3.2:1b"]',
    "  tenant acme: budgets.monthly none -> 70000",
    `  key ${prefix}: tpm none -> 5000`,
    `  key ${prefix}: budgets.daily none -> 1000`,
    `  key ${prefix}: prompt_log false -> 7`,
    "+ tenant new",
    "changes would be made"
  ])
    assert.include(dry.stdout, line)
  assert.strictEqual(yield* exported, before, "a dry run changes nothing")
  const done = yield* applyText(wanted(prefix))
  succeeds(done)
  assert.strictEqual(done.stdout.replace("made", "would be made"), dry.stdout)
  const after = yield* exported
  assert.include(after, "rpm: 300")
  assert.include(after, "fast: llama3.2:1b")
  assert.include((yield* applyText(wanted(prefix))).stdout, "nothing to change")
  // The order of lists means nothing, and `true` leaves the days of the prompt log as they are.
  const other = wanted(prefix)
    .replace("prompt_log: 7", "prompt_log: true")
    .replace("[llama3.2:1b]", "[llama3.2:1b, llama3.2:1b]")
  assert.include((yield* applyText(other)).stdout, "nothing to change")
  // What export prints is what apply takes.
  assert.include((yield* applyText(after)).stdout, "nothing to change")
  succeeds(yield* applyText(before.replace(/aliases: .*/, "aliases: {}")))
  assert.include(yield* exported, "rpm: 60")
})

test("when one tenant is exported, then no other is, and nothing that is not set", function* () {
  const { prefix } = yield* oneTenant
  succeeds(yield* tollgateHere("create-tenant", "--name", "other"))
  const { stdout } = yield* tollgateHere("export", "--tenant", "acme")
  assert.include(stdout, `- prefix: ${prefix}`)
  for (const absent of ["null", "other", "budgets", "{}"])
    assert.notInclude(stdout.split("\n").slice(1).join("\n"), absent)
  assert.include((yield* applyText(stdout)).stdout, "nothing to change")
  failsWith(yield* tollgateHere("export", "--tenant", "nobody"), /unknown tenant "nobody"/)
})

test("when tenants are exported as JSON, then the names of aliases are as they were, and apply takes it", function* () {
  yield* oneTenant
  succeeds(yield* tollgateHere("set-models", "--tenant", "acme", "--models", "big", "--alias", "GPT-4o=big"))
  const { stdout } = yield* tollgateHere("export", "--json")
  assert.include(stdout, '"GPT-4o": "big"')
  assert.include((yield* applyText(stdout)).stdout, "nothing to change")
})

test("when one change of a file is refused, then none is made, and a dry run is refused too", function* () {
  const { prefix } = yield* oneTenant
  const ofKey = (settings: string) =>
    `version: 1\ntenants:\n  - { name: acme, keys: [{ prefix: ${prefix}, ${settings} }] }\n`
  succeeds(yield* applyText(ofKey("end_user_header: X-User, each_user_rpm: 5")))
  const before = yield* exported
  for (const more of [["--dry-run"], []])
    failsWith(
      yield* applyText(ofKey("end_user_header: null"), ...more),
      /end-user-header must be kept while the key has limits/
    )
  failsWith(
    yield* applyText("version: 1\ntenants:\n  - { name: acme, rpm: 7 }\n  - { name: other, tpm: 0 }\n"),
    /yaml: tenants\[1\]\.tpm must be a whole number from 1/
  )
  assert.strictEqual(yield* exported, before)
})

test("when a file is wrong, then one line says where", function* () {
  const { prefix } = yield* oneTenant
  succeeds(yield* tollgateHere("create-tenant", "--name", "other"))
  const cases: ReadonlyArray<readonly [string, RegExp]> = [
    ["version: [", /yaml: /],
    ["", /yaml: /],
    ["version: 2\ntenants: []\n", /version/],
    ["version: 1\ntenants:\n  - { name: acme, rmp: 5 }\n", /tenants\[0\]\.rmp: there is no such field/],
    ["version: 1\ntenants:\n  - { name: acme, rpm: many }\n", /rpm/],
    [
      `version: 1\ntenants:\n  - { name: other, keys: [{ prefix: ${prefix} }] }\n`,
      /belongs to another tenant/
    ],
    ["version: 1\ntenants:\n  - { name: acme, keys: [{ prefix: tg_000000000 }] }\n", /unknown key prefix/],
    [
      `version: 1\ntenants:\n  - { name: acme, keys: [{ prefix: ${prefix}, name: x }] }\n`,
      /a name cannot change/
    ],
    ["version: 1\ntenants:\n  - { name: acme }\n  - { name: acme }\n", /tenant acme is there twice/],
    [`a: &a [${"x,".repeat(50)}]\n${Array.from({ length: 200 }, (_, n) => `b${n}: *a`).join("\n")}`, /yaml: /]
  ]
  for (const [text, expected] of cases) failsWith(yield* applyText(text), expected, text.slice(0, 60))
  failsWith(yield* tollgateHere("apply", "-f", `${fileOf("")}.absent`), /absent: the file cannot be read/)
  succeeds(yield* tollgateHere("revoke-key", "--prefix", prefix))
  failsWith(
    yield* applyText(`version: 1\ntenants:\n  - { name: acme, keys: [{ prefix: ${prefix}, rpm: 5 }] }\n`),
    /is revoked/
  )
})
