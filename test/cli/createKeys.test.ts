/** `create-keys`: keys for many people, of which none is lost and none is made twice. */
import { existsSync, mkdtempSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { verify } from "@node-rs/argon2"
import { Effect, Redacted, Schema } from "effect"
import { TestConsole } from "effect/testing"
import { Registry } from "../../src/admin/Registry.ts"
import { TestDatabase } from "../support/TestPostgres.ts"
import { eventually } from "../support/wait.ts"
import { Admin, fileOf, tollgateHere } from "./inProcess.ts"
import { failsWith, json, start, succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const folder = mkdtempSync(path.join(tmpdir(), "tollgate-keys-"))

const linesOf = (file: string): ReadonlyArray<ReadonlyArray<string>> =>
  existsSync(file)
    ? readFileSync(file, "utf8")
        .trim()
        .split("\n")
        .slice(1)
        .map((line) => line.split(","))
    : []

const acme = tollgateHere("create-tenant", "--name", "acme", "--allow-all-models")

const importing = (names: string, out: string, ...more: ReadonlyArray<string>) =>
  tollgateHere("create-keys", "--tenant", "acme", "--names", names, "--out", out, ...more)

/** Every live key has one line, and its text is right. */
const assertComplete = Effect.fnUntraced(function* (out: string, names: ReadonlyArray<string>) {
  const keys = yield* sql<{ name: string; prefix: string; hash: string }>`
    SELECT name, prefix, hash FROM api_keys WHERE status = 'active' ORDER BY name`
  assert.deepStrictEqual(
    keys.map(({ name }) => name),
    names.toSorted()
  )
  const lines = linesOf(out)
  assert.sameDeepMembers(
    lines.map(([name, prefix]) => [name, prefix]),
    keys.map(({ name, prefix }) => [name, prefix])
  )
  const [name, , secret = ""] = lines.at(-1) ?? []
  const hash = keys.find((key) => key.name === name)?.hash ?? ""
  assert.isTrue(yield* Effect.promise(() => verify(hash, secret)))
})

it.live(
  "when the process dies before a commit and after one, then a second run makes each key once, and no text is lost",
  () =>
    Effect.gen(function* () {
      succeeds(yield* acme)
      const { url } = yield* TestDatabase
      const names = Array.from({ length: 250 }, (_, at) => `person-${String(at).padStart(3, "0")}`)
      const [people, out] = [fileOf(names.join("\n")), path.join(folder, "killed.csv")]
      const killedWhen = Effect.fnUntraced(function* <E, R>(condition: Effect.Effect<boolean, E, R>) {
        const args = ["create-keys", "--tenant", "acme", "--names", people, "--out", out]
        const child = start({ DATABASE_URL: Redacted.value(url) }, args)
        assert.isTrue(yield* eventually(condition, Boolean))
        child.kill("SIGKILL")
        yield* sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE application_name = 'tollgate-cli' AND datname = current_database()`
        yield* eventually(
          sql`SELECT 1 FROM pg_stat_activity WHERE application_name = 'tollgate-cli' AND datname = current_database()`,
          (found) => found.length === 0
        )
      })
      // The lines are in the file, and the commit does not come to its end.
      yield* sql`CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END'`
      yield* sql`CREATE CONSTRAINT TRIGGER hang AFTER INSERT ON api_keys DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION hang()`
      yield* killedWhen(Effect.sync(() => linesOf(out).length === 100))
      yield* sql`DROP TRIGGER hang ON api_keys`
      assert.lengthOf(yield* sql`SELECT 1 FROM api_keys`, 0)
      const lost = linesOf(out)
      assert.lengthOf(lost, 100)

      // Some keys are in force, and others are not yet made.
      yield* killedWhen(Effect.map(sql`SELECT 1 FROM api_keys`, ({ length }) => length > 0))
      assert.isBelow((yield* sql`SELECT 1 FROM api_keys`).length, 250)
      const last = yield* importing(people, out)
      succeeds(last)
      yield* assertComplete(out, names)
      assert.includeDeepMembers([...linesOf(`${out}.unused`)], [...lost])
      assert.strictEqual(statSync(out).mode & 0o777, 0o600)
      assert.strictEqual(statSync(`${out}.unused`).mode & 0o777, 0o600)
      assert.match(last.stderr, /names had a live key and got no other:\n {2}tg_\w+ {2}person-000\n/)
    }).pipe(Effect.provide([Admin, TestConsole.layer]))
)

const test = testWith(it.effect, Admin)

test("when keys cannot be stored, then none is in force", function* () {
  succeeds(yield* acme)
  const people = fileOf("Ana\nBen")
  failsWith(yield* importing(people, path.join(folder, "missing", "keys.csv")), /the file cannot be written/)
  failsWith(yield* importing(people, people), /it is no file that create-keys wrote/)
  const registry = yield* Registry
  const keep = () => Effect.fail("disk full")
  const error = yield* Effect.flip(registry.createKeys({ tenant: "acme", names: ["Ana"] }, keep))
  assert.strictEqual(error, "disk full")
  assert.lengthOf(yield* registry.listKeys("acme"), 0)
})

const Summary = Schema.Struct({
  created: Schema.Finite,
  skipped: Schema.Array(Schema.Struct({ name: Schema.String, in_file: Schema.Boolean })),
  unused: Schema.Array(Schema.Struct({ name: Schema.String }))
})

test("when names are imported, then those with a live key get no other, and the settings are those given", function* () {
  succeeds(yield* acme)
  const old = yield* tollgateHere("create-key", "--tenant", "acme", "--name", "Ana García, 研究室")
  const out = path.join(folder, "settings.csv")
  const people = fileOf('\ufeffmail;Name\r\na@x;"Ana García, 研究室"\r\nb@x;"Ben ""B"""\r\n\r\nc@x;=Cy;\r\n')
  const first = yield* importing(people, out, "--rpm", "7", "--expires-in", "2d")
  succeeds(first)
  assert.strictEqual(first.stdout, `2 keys created in ${out}\n`)
  assert.include(first.stderr, "1 key of these is not in")
  const registry = yield* Registry
  const listed = yield* registry.listKeys("acme")
  // Keys of one transaction have one time.
  const rows = ["Ana García, 研究室", 'Ben "B"', "=Cy"].flatMap((name) =>
    listed.filter((key) => key.name === name)
  )
  assert.lengthOf(listed, 3)
  assert.deepStrictEqual(
    rows.map(({ name, rpm, expires }) => [name, rpm, expires !== null]),
    [
      ["Ana García, 研究室", null, false],
      ['Ben "B"', 7, true],
      ["=Cy", 7, true]
    ]
  )
  for (const { secret } of linesOf(out).map(([, , secret = ""]) => ({ secret })))
    assert.notInclude(first.stdout + first.stderr, secret)
  // A key that was revoked is replaced, and its line is no longer with the keys that work.
  const gone = rows[2]?.prefix ?? ""
  yield* registry.revokeKey(gone)
  const again = yield* json(Summary, yield* importing(people, out, "--json"))
  assert.deepStrictEqual(again, {
    created: 1,
    skipped: [
      { name: "Ana García, 研究室", in_file: false },
      { name: 'Ben "B"', in_file: true }
    ],
    unused: [{ name: "=Cy" }]
  })
  assert.notInclude(readFileSync(out, "utf8"), gone)
  assert.include(readFileSync(`${out}.unused`, "utf8"), gone)
  assert.notInclude(readFileSync(out, "utf8"), old.stdout.trim())
})

test("when a table has options and other columns, then each key has its own, and the others stand behind the key", function* () {
  succeeds(yield* acme)
  const out = path.join(folder, "columns.csv")
  const people = fileOf(
    'Mail,name,Daily,models,priority,expires-at\na@x,Ana,50k,"m:1, n:1",batch,2099-01-31\n=b@x,Ben,,,,\n'
  )
  succeeds(yield* importing(people, out, "--daily", "70", "--monthly", "900"))
  const registry = yield* Registry
  const [ana, ben] = yield* registry.listKeys("acme")
  assert.deepInclude(ana, {
    budgetDaily: 50_000,
    budgetMonthly: 900,
    priority: "batch",
    ownModels: ["m:1", "n:1"]
  })
  assert.strictEqual(ana?.expires?.toISOString(), "2099-02-01T00:00:00.000Z")
  assert.deepInclude(ben, {
    budgetDaily: 70,
    budgetMonthly: 900,
    priority: "interactive",
    ownModels: null,
    expires: null
  })
  assert.match(readFileSync(out, "utf8"), /^name,prefix,key,Mail\nAna,\S+,a@x\nBen,\S+,'=b@x\n$/)
  // A later run keeps them, and adds its own columns.
  succeeds(yield* importing(fileOf("name,team\nCy,red\n"), out))
  assert.match(
    readFileSync(out, "utf8"),
    /^name,prefix,key,Mail,team\nAna,\S+,a@x,\nBen,\S+,'=b@x,\nCy,\S+,,red\n$/
  )
  const printed = yield* importing(fileOf("name,mail\nDi,d@x"), "-")
  assert.match(printed.stdout, /^name,prefix,key,mail\nDi,\S+,d@x\n$/)
  for (const [text, expected] of [
    ["name,daily\nEve,many", /"Eve": daily must be a whole number of tokens/],
    ["name,expires-at\nEve,soon", /"Eve": expires-at must be a time in the future/],
    ["name,key\nEve,old", /the column "key" would be in the file of keys twice/],
    ["name,mail,Mail\nEve,a,b", /the column "mail" would be in the file of keys twice/]
  ] as const)
    failsWith(yield* importing(fileOf(text), out), expected, text)
  assert.lengthOf(yield* registry.listKeys("acme"), 4)
})

test("when the keys of LiteLLM are read, then new keys have their names, limits, budgets, models and ends", function* () {
  succeeds(yield* acme)
  const out = path.join(folder, "litellm.csv")
  const key = (key_alias: string, more: object) => ({
    token: "88dc28d0",
    key_name: "sk-...abcd",
    spend: 1.5,
    key_alias,
    ...more
  })
  const page = (...keys: ReadonlyArray<object>) =>
    fileOf(JSON.stringify({ keys, total_count: keys.length, current_page: 1, total_pages: 1 }))
  const all = page(
    key("ana", {
      models: ["ollama/llama3.2:3b", "all-team-models"],
      rpm_limit: 7,
      tpm_limit: 900,
      max_parallel_requests: 2,
      max_budget: 2.5,
      budget_duration: "30d",
      expires: "2099-01-31T10:00:00.123456",
      user_id: "ana@x"
    }),
    key("ben", { max_budget: null, models: [], expires: null }),
    key("blocked", { blocked: true })
  )
  failsWith(yield* importing(all, out), /"ana" has a budget in dollars: give --tokens-per-dollar too/)
  succeeds(yield* importing(all, out, "--tokens-per-dollar", "500k"))
  const registry = yield* Registry
  const [ana, ben, ...others] = yield* registry.listKeys("acme")
  assert.lengthOf(others, 0)
  assert.deepInclude(ana, {
    name: "ana",
    rpm: 7,
    tpm: 900,
    concurrent: 2,
    budgetMonthly: 1_250_000,
    budgetDaily: null,
    ownModels: ["llama3.2:3b"]
  })
  assert.strictEqual(ana?.expires?.toISOString(), "2099-01-31T10:00:00.123Z")
  assert.deepInclude(ben, { name: "ben", rpm: null, budgetTotal: null, ownModels: null, expires: null })
  assert.match(readFileSync(out, "utf8"), /^name,prefix,key,user_id\nana,\S+,ana@x\nben,/)
  const odd = page(key("cy", { max_budget: 1, budget_duration: "90s" }))
  failsWith(
    yield* importing(odd, out, "--tokens-per-dollar", "1"),
    /"cy" has a budget for 90s, which is none of daily/
  )
  failsWith(yield* importing(fileOf('{"data":[]}'), out), /it is no list of keys as LiteLLM answers/)
})

test("when a list of names is not clear, or keys would be shown on a terminal, then nothing is made", function* () {
  succeeds(yield* acme)
  const out = path.join(folder, "refused.csv")
  for (const [text, expected] of [
    ["Ana\nBen\nAna", /the name "Ana" is in it twice/],
    ["Garcia, Ana\nGarcia, Ben", /several columns, and the first line calls none of them "name"/],
    ["name\nAna\nGarcia, Ben", /a line has more columns than the first/],
    ['"Ana', /a quote is not closed/],
    ["name\n", /there are no names in it/],
    [`Ana\n${"x".repeat(65)}`, /must be 1 to 64 characters/]
  ] as const)
    failsWith(yield* importing(fileOf(text), out), expected, text)
  writeFileSync(path.join(folder, "latin1.csv"), Buffer.from("Jos\xe9", "latin1"))
  failsWith(yield* importing(path.join(folder, "latin1.csv"), out), /the text is not UTF-8/)
  failsWith(yield* importing(path.join(folder, "no-such.csv"), out), /the file cannot be read/)
  const names = fileOf("Ana")
  failsWith(
    yield* tollgateHere("create-keys", "--tenant", "nobody", "--names", names, "--out", out),
    /unknown tenant "nobody"/
  )
  const onTerminal = yield* Effect.acquireUseRelease(
    Effect.sync(() => Object.defineProperty(process.stdout, "isTTY", { value: true, configurable: true })),
    () => tollgateHere("create-keys", "--tenant", "acme", "--names", names),
    () => Effect.sync(() => Reflect.deleteProperty(process.stdout, "isTTY"))
  )
  failsWith(onTerminal, /--out must be a file, such as keys.csv, or "-" to print the keys on this terminal/)
  assert.isFalse(existsSync(out))
  const registry = yield* Registry
  assert.lengthOf(yield* registry.listKeys("acme"), 0)
  const printed = yield* tollgateHere("create-keys", "--tenant", "acme", "--names", names, "--out", "-")
  assert.match(printed.stdout, /^name,prefix,key\nAna,(tg_\w{9}),\1\w{32}\n$/)
})

test("when a tenant has a live key of a name, then create-key makes another only when it is asked to", function* () {
  succeeds(yield* acme)
  const registry = yield* Registry
  const make = registry.createKey({ tenant: "acme", name: "laptop" })
  const made = yield* Effect.all(
    Array.from({ length: 4 }, () => Effect.option(make)),
    {
      concurrency: "unbounded"
    }
  )
  const [prefix = ""] = made.flatMap((one) => (one._tag === "Some" ? [one.value.key.prefix] : []))
  assert.lengthOf(yield* registry.listKeys("acme"), 1)
  const again = ["create-key", "--tenant", "acme", "--name", "laptop"]
  failsWith(
    yield* tollgateHere(...again),
    new RegExp(
      `a live key named "laptop": ${prefix}\\. Use another name, revoke that key, or give --allow-dup`
    )
  )
  succeeds(yield* tollgateHere(...again, "--allow-duplicate"))
  for (const key of yield* registry.listKeys("acme")) yield* registry.revokeKey(key.prefix)
  succeeds(yield* tollgateHere(...again))
})
