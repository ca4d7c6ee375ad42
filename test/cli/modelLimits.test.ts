/** `set-limits --model`: what a key, or each key of a tenant, may use of one model. */
import { assert, it } from "@effect/vitest"
import { prefixOf } from "../../src/domain/Key.ts"
import { testWith } from "../support/testWith.ts"
import { Admin, fileOf, tollgateHere, tollgateWithModels } from "./inProcess.ts"
import { succeeds } from "./tollgate.ts"
import { sql } from "../support/sql.ts"

const tollgate = tollgateWithModels("llama3.2:3b", "big:latest")
const line = (text: string) => tollgate(...text.split(" "))

const test = testWith(it.effect, Admin)

test("when a key and a tenant have limits for models, then they are checked, shown, shared, exported, applied and removed", function* () {
  succeeds(yield* line("create-tenant --name acme --allow-all-models"))
  const prefix = prefixOf((yield* line("create-key --tenant acme --name anna")).stdout)
  const refusals = [
    ["--key anna --model lama3.2 --rpm 5", "did you mean llama3.2:3b?"],
    ["--key anna --model big", "--rpm must be given, or --tpm or --daily"],
    ["--key anna --model big --rpm 0", "--rpm must be a whole number from 1"],
    ["--key anna --model big --concurrent 2 --rpm 5", "--concurrent must be given without --model"],
    ["--key anna --model big --each-user --rpm 5", "--model must be given without --user and --each-user"],
    ["--key anna --daily 5", "--daily must be given with --model"],
    [
      `--key anna --model ${"x".repeat(101)} --rpm 5 --yes`,
      "--model must be a model name of at most 100 ASCII"
    ],
    ["--key anna --model big\u00e9 --rpm 5 --yes", "--model must be a model name of at most 100 ASCII"]
  ] as const
  for (const [options, text] of refusals) {
    const refused = yield* line(`set-limits ${options}`)
    assert.strictEqual(refused.code, 1)
    assert.include(refused.stderr, text)
  }

  const set = yield* line("set-limits --key anna --model llama3.2:3b --rpm 10 --tpm 5000 --daily 100k")
  assert.match(set.stdout, /OF\s+RPM\s+TPM\s+DAILY\nllama3.2:3b\s+10\s+5,000\s+100,000\n/)
  assert.include(set.stderr, "--rpm was none of its own and is 10")
  // One name, with and without the tag.
  succeeds(yield* line("set-limits --key anna --model big:latest --rpm 3"))
  assert.include((yield* line("set-limits --key anna --model big --rpm 4")).stderr, "--rpm was 3 and is 4")
  const later = yield* line("set-limits --tenant acme --model later:1 --daily 1M --yes")
  succeeds(later)
  assert.include(later.stderr, "later:1 is not installed")
  assert.include(
    (yield* tollgateHere("set-limits", "--tenant", "acme", "--model", "m", "--rpm", "1")).stderr,
    "it was not checked that these models are installed"
  )

  const shown = yield* line(`show-key --prefix ${prefix}`)
  assert.match(shown.stdout, /model big\s+rpm 4\n[^]*model llama3.2:3b\s+rpm 10, tpm 5,000, daily 100,000\n/)
  assert.match(
    (yield* line("list-tenants")).stdout,
    /MODEL LIMITS[^]*m \(rpm 1\).*later:1 \(daily 1,000,000\)/
  )
  const rotated = prefixOf((yield* line(`rotate-key --prefix ${prefix} --grace 7d`)).stdout)
  succeeds(yield* line(`set-limits --key ${rotated} --model big --rpm none`))
  const rows = yield* sql`SELECT model_rules FROM api_keys WHERE name = 'anna'`
  const expected = { "llama3.2:3b": { rpm: 10, tpm: 5000, daily: 100_000 } }
  assert.deepStrictEqual(
    rows.map((row) => ({ ...row })),
    [{ model_rules: expected }, { model_rules: expected }]
  )

  const exported = yield* line("export --tenant acme")
  assert.match(
    exported.stdout,
    /model_rules:\n\s+- name: m\n\s+rpm: 1\n\s+- name: later:1\n\s+daily: 1000000/
  )
  assert.match(
    exported.stdout,
    /model_rules:\n\s+- name: llama3.2:3b\n\s+rpm: 10\n\s+tpm: 5000\n\s+daily: 100000/
  )
  const apply = (text: string) => tollgate("apply", "-f", fileOf(text))
  assert.include((yield* apply(exported.stdout)).stdout, "nothing to change")
  const file = (rules: string) => `version: 1\ntenants: [{name: acme, model_rules: ${rules}}]\n`
  for (const rules of [
    "[{name: m:latest, rpm: 1}]",
    `[${Array.from({ length: 33 }, (_, n) => `{name: m${n}, rpm: 1}`).join()}]`
  ])
    assert.include((yield* apply(file(rules))).stderr, "without :latest, and at most 32 models")
  assert.include((yield* apply(file("[{name: m, rps: 1}]"))).stderr, "there is no such field")
  succeeds(yield* apply(file("[]")))
  assert.notInclude((yield* line("list-tenants")).stdout, "MODEL LIMITS")
})
