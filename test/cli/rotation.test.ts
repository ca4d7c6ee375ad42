import { assert, it } from "@effect/vitest"
import { Arbitrary, Effect, Equal, Record, Schema } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import * as Values from "../../src/admin/Values.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { KeyAttributes, newKey } from "../../src/domain/attributes.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { json, succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

/** Columns that say which key it is, whose and how old. All others must carry over, also one that is added later. */
const identity = ["id", "prefix", "hash", "created_at", "expires_at", "status", "budget_account"]

const settingsOf = Effect.fnUntraced(function* (prefix: string) {
  const [row] = yield* sql<{ row: Record<string, unknown> }>`
    SELECT to_jsonb(k) - ${identity}::text[] AS row FROM api_keys k WHERE prefix = ${prefix}`
  return row?.row ?? {}
})

/** A value for each setting that no new key has, so that a forgotten one is seen. */
const unusual = Effect.gen(function* () {
  const samples = yield* Arbitrary.sampleEffect(Arbitrary.schema(Schema.toType(KeyAttributes)), {
    count: 100,
    seed: "rotation"
  })
  const values = Record.map(newKey, (usual, setting) =>
    samples.map((sample) => sample[setting]).find((value) => value !== usual)
  )
  const rules = { userRules: [{ name: "ada", rpm: 5 }], modelRules: [{ name: "m:1", rpm: 5 }] }
  return yield* Values.keyChange({ ...values, ...rules })
})

const hoursLeft = Effect.fnUntraced(function* (prefix: string) {
  const [row] = yield* sql<{ hours: number | null }>`
    SELECT extract(epoch FROM expires_at - now())::float8 / 3600 AS hours FROM api_keys WHERE prefix = ${prefix}`
  return row?.hours
})

const test = testWith(it.effect, Admin)

test("when a key is rotated, then all its settings carry over, the key alone is printed, and the old one ends after the grace", function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "acme"))
  const words = "create-key --tenant acme --name ci --scopes embeddings --expires-in 90d"
  const old = prefixOf((yield* tollgateHere(...words.split(" "))).stdout)
  const registry = yield* Registry
  yield* registry.changeKey(old, yield* unusual)
  const before = yield* settingsOf(old)
  const plain = prefixOf((yield* tollgateHere("create-key", "--tenant", "acme", "--name", "plain")).stdout)
  const usual = yield* settingsOf(plain)
  const same = Object.keys(before).filter((column) => Equal.equals(before[column], usual[column]))
  assert.deepStrictEqual(same, ["tenant_id"], "a column that is no field of KeyAttributes")

  const ran = yield* tollgateHere("rotate-key", "--prefix", old, "--grace", "2d")
  succeeds(ran)
  assert.match(ran.stdout, /^tg_[0-9A-Za-z]{41}\n$/)
  assert.match(ran.stderr, /which works until \d{4}-/)
  const fresh = prefixOf(ran.stdout)
  assert.notStrictEqual(fresh, old)
  assert.deepStrictEqual(yield* settingsOf(fresh), before)
  assert.closeTo((yield* hoursLeft(fresh)) ?? 0, 90 * 24, 1)
  assert.closeTo((yield* hoursLeft(old)) ?? 0, 48, 1)
  const stored = yield* sql<{ row: string }>`SELECT k::text AS row FROM api_keys k`
  assert.isFalse(stored.some(({ row }) => row.includes(ran.stdout.trim().slice(12))))
})

test("when there is no grace, then the old key stays as it is, and a grace never prolongs one", function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "acme"))
  const lasting = prefixOf((yield* tollgateHere("create-key", "--tenant", "acme", "--name", "a")).stdout)
  const Answer = Schema.Struct({
    secret: Schema.String,
    expires: Schema.Null,
    replaced: Schema.Struct({ prefix: Schema.String, status: Schema.String, expires: Schema.Null })
  })
  const ran = yield* tollgateHere("rotate-key", "--prefix", lasting, "--json")
  const answer = yield* json(Answer, ran)
  assert.deepStrictEqual(answer.replaced, { prefix: lasting, status: "active", expires: null })
  assert.isNull(yield* hoursLeft(lasting))

  const brief = prefixOf(
    (yield* tollgateHere("create-key", "--tenant", "acme", "--name", "b", "--expires-in", "1h")).stdout
  )
  succeeds(yield* tollgateHere("rotate-key", "--prefix", brief, "--grace", "30d"))
  assert.isBelow((yield* hoursLeft(brief)) ?? 99, 1.01)
})

test("when a leaked key was revoked and is then replaced, then it stays revoked", function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "acme"))
  const leaked = prefixOf((yield* tollgateHere("create-key", "--tenant", "acme", "--name", "a")).stdout)
  succeeds(yield* tollgateHere("revoke-key", "--prefix", leaked))
  const ran = yield* tollgateHere("rotate-key", "--prefix", leaked)
  succeeds(ran)
  assert.include(ran.stderr, "which is revoked")
  const listed = yield* tollgateHere("list-keys", "--tenant", "acme")
  assert.match(listed.stdout, new RegExp(`${leaked}\\s+revoked`))
  assert.match(listed.stdout, new RegExp(`${prefixOf(ran.stdout)}\\s+active`))
})
