import { writeFileSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { Schema } from "effect"
import { Admin, fileOf, tollgateHere, tollgateWithModels } from "./inProcess.ts"
import { failsWith, json, succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"

const tollgate = tollgateWithModels("llama3.2:3b", "big:latest")

const Aliases = Schema.Struct({
  model_aliases: Schema.Array(Schema.Struct({ alias: Schema.String, model: Schema.String }))
})

const test = testWith(it.effect, Admin)

test("when aliases are set, changed and removed, then the others stay, and list-models shows where they lead", function* () {
  succeeds(yield* tollgate("create-tenant", "--name", "acme"))
  const set = (...args: ReadonlyArray<string>) => tollgate("set-models", "--tenant", "acme", ...args)
  succeeds(yield* set("--models", "llama3.2:3b", "--alias", "fast=llama3.2:3b, gpt-4o:latest=llama3.2:3b"))
  const changed = yield* set("--alias", "fast=big", "--json")
  assert.deepStrictEqual(yield* json(Aliases, changed), {
    model_aliases: [
      { alias: "fast", model: "big" },
      { alias: "gpt-4o", model: "llama3.2:3b" }
    ]
  })
  assert.match(changed.stderr, /acme may not use big: requests for fast are refused/)
  const missing = yield* set("--alias", "later=qwen3:8b")
  succeeds(missing)
  assert.match(missing.stderr, /qwen3:8b is not installed: requests for later are refused until it is/)
  const listed = yield* tollgate("list-models", "--tenant", "acme")
  assert.match(listed.stdout, /gpt-4o = llama3.2:3b .* yes/)
  assert.match(listed.stdout, /fast = big .* no/)
  assert.match(listed.stdout, /later = qwen3:8b .* no/)
  const removed = yield* set("--remove-alias", "later,fast", "--json")
  assert.deepStrictEqual(yield* json(Aliases, removed), {
    model_aliases: [{ alias: "gpt-4o", model: "llama3.2:3b" }]
  })
  assert.include((yield* tollgate("list-tenants")).stdout, "gpt-4o=llama3.2:3b")
})

test("when an alias gets defaults, then they are shown, kept, changed, exported and removed with it", function* () {
  succeeds(yield* tollgate("create-tenant", "--name", "tuned"))
  const set = (...args: ReadonlyArray<string>) => tollgate("set-models", "--tenant", "tuned", ...args)
  const file = fileOf("Be brief.\n")
  const long = ["--alias", "long:latest=llama3.2:3b"]
  const first = yield* set(..."--allow-all --num-ctx 32k --think off --system-file".split(" "), file, ...long)
  assert.include(first.stdout, "long=llama3.2:3b (num_ctx 32,000, think off, system)")
  const Defaults = Schema.Struct({
    alias_defaults: Schema.Array(Schema.Record(Schema.String, Schema.Unknown))
  })
  const changed = yield* set(..."--alias long=big,other=big --num-ctx 8192 --think none --json".split(" "))
  assert.deepStrictEqual((yield* json(Defaults, changed)).alias_defaults, [
    { name: "long", num_ctx: 8192, system: "Be brief." },
    { name: "other", num_ctx: 8192 }
  ])
  const exported = yield* tollgate("export")
  assert.match(exported.stdout, /alias_defaults:\n\s+- name: long\n\s+num_ctx: 8192\n\s+system: Be brief\./)
  assert.include((yield* set("--num-ctx", "8192")).stderr, "--alias must be given with --num-ctx")
  assert.notStrictEqual((yield* set(...long, "--num-ctx", "3")).code, 0)
  writeFileSync(file, "x".repeat(16_384))
  succeeds(yield* set(...long, "--system-file", file))
  assert.include(
    (yield* set("--alias", "other=big", "--system-file", file)).stderr,
    "16384 bytes for all aliases"
  )
  writeFileSync(file, "x".repeat(16_385))
  assert.include((yield* set(...long, "--system-file", file)).stderr, "the file has more than 16384 bytes")
  const removed = yield* set("--remove-alias", "long", "--json")
  assert.deepStrictEqual((yield* json(Defaults, removed)).alias_defaults, [{ name: "other", num_ctx: 8192 }])
})

test("when an alias has the name of an installed model, no form, or is one too many, then nothing is changed", function* () {
  succeeds(yield* tollgate("create-tenant", "--name", "acme"))
  const set = (...args: ReadonlyArray<string>) => tollgate("set-models", "--tenant", "acme", ...args)
  failsWith(yield* set("--alias", "big=llama3.2:3b"), /no installed model has/)
  failsWith(yield* set("--alias", "llama3.2:3b=big"), /no installed model has/)
  failsWith(yield* set("--alias", "new=new:latest"), /another name than that of its model/)
  for (const form of ["fast", "fast=", "=big", "a=b=c,d"]) {
    const ran = yield* set("--alias", form)
    assert.notStrictEqual(ran.code, 0, form)
  }
  for (const alias of ["__proto__", ".x", "a b", "ä", "x".repeat(129)]) {
    failsWith(yield* set("--alias", `${alias}=big`), /an alias of at most 128/, alias)
  }
  failsWith(yield* set("--remove-alias", "nothing"), /an alias of the tenant/)
  const many = Array.from({ length: 100 }, (_, i) => `a${i}=big`).join(",")
  succeeds(yield* set("--alias", many))
  failsWith(yield* set("--alias", "one-more=big"), /at most 100 aliases/)
  failsWith(yield* tollgate("set-models", "--tenant", "nobody", "--alias", "a=b"), /nobody/)
})

test("when the model server does not answer, then aliases are stored, and the command says that it did not check", function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "acme"))
  const ran = yield* tollgateHere("set-models", "--tenant", "acme", "--alias", "fast=big")
  succeeds(ran)
  assert.match(ran.stderr, /does not answer, so it was not checked/)
  assert.include(ran.stdout, "fast=big")
})

test("when names of models lead nowhere, then set-models and apply say so, and what is installed under that name", function* () {
  const created = yield* tollgate("create-tenant", "--name", "acme")
  assert.match(created.stderr, /may use no model: every model request gets 403/)
  const set = (...args: ReadonlyArray<string>) => tollgate("set-models", "--tenant", "acme", ...args)
  const missing = yield* set("--models", "llama3.2,big,qwen3:8b", "--yes")
  succeeds(missing)
  assert.strictEqual(
    missing.stderr,
    `Added: llama3.2, big, qwen3:8b
llama3.2 is not installed: requests for it are refused until it is. Installed: llama3.2:3b.
qwen3:8b is not installed: requests for it are refused until it is. Installed: llama3.2:3b, big:latest.
`
  )
  const good = yield* set("--models", "llama3.2:3b,big")
  assert.strictEqual(good.stderr, "Removed: llama3.2, qwen3:8b\nAdded: llama3.2:3b\n")
  assert.match((yield* set("--models", "", "--yes")).stderr, /may use no model/)
  assert.match((yield* tollgateHere("set-models", "--tenant", "acme", "--models", "x")).stderr, /not checked/)
  const file = fileOf("version: 1\ntenants: [{ name: acme, models: [big:1], aliases: { fast: llama3.2 } }]\n")
  for (const more of [["--dry-run"], []]) {
    const applied = yield* tollgate("apply", "-f", file, ...more)
    succeeds(applied)
    assert.match(
      applied.stderr,
      /big:1 is not installed.* Installed: big:latest\.\nllama3\.2 is not installed/
    )
  }
  const again = yield* tollgate("apply", "-f", file)
  assert.match(again.stdout, /nothing to change/)
  assert.strictEqual(again.stderr, "")
})

test("when a key is made, enabled or rotated in a tenant that is disabled or has no models, then the command says that it cannot work", function* () {
  succeeds(yield* tollgate("create-tenant", "--name", "acme"))
  succeeds(yield* tollgate("disable-tenant", "--tenant", "acme"))
  const made = yield* tollgate("create-key", "--tenant", "acme", "--name", "k")
  const prefix = made.stdout.slice(0, 12)
  succeeds(yield* tollgate("disable-key", "--prefix", prefix))
  const [enabled, rotated] = [
    yield* tollgate("enable-key", "--prefix", prefix),
    yield* tollgate("rotate-key", "--prefix", prefix)
  ]
  for (const ran of [made, enabled, rotated]) {
    succeeds(ran)
    assert.match(ran.stderr, /The tenant is disabled: every request gets 401\. "tollgate enable-tenant/)
    assert.match(ran.stderr, /The tenant may use no model/)
  }
  assert.match((yield* tollgate("enable-tenant", "--tenant", "acme")).stderr, /may use no model/)
})
