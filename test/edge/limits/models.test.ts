/** Limits of a key and of each key of a tenant for single models, over two replicas with the same stores. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Registry } from "../../../src/admin/Registry.ts"
import { Meter } from "../../../src/gates/meter/Meter.ts"
import { Redis } from "../../../src/infra/Redis.ts"
import { tollgateBeside } from "../../cli/inProcess.ts"
import { succeeds } from "../../cli/tollgate.ts"
import { call, eventually, Fake, Gateway, hello, newKey, otherReplica } from "../../support/Gateway.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"
import { accountOf, answerOf, budgetOf, messageOf, World } from "./budgets.ts"

const limitOf = ({ headers }: { readonly headers: Headers }) =>
  ["model", "limit-requests", "remaining-requests"].map((name) => headers.get(`x-ratelimit-${name}`))

/** A key with much room, and how it chats. */
const keyOf = Effect.fnUntraced(function* () {
  const key = yield* newKey({ rpm: 100_000, tpm: 1_000_000_000, concurrent: 1000 })
  const chat = (model: string, headers: Readonly<Record<string, string>> = {}) =>
    call("/v1/chat/completions", { secret: key.secret, body: hello({ model, max_tokens: 50 }), headers })
  return { ...key, chat }
})

const operate = Effect.fnUntraced(function* (...words: ReadonlyArray<string>) {
  succeeds(yield* tollgateBeside(...words))
})

/** What the live counter has of model `m` today, and the ledger. */
const counted = Effect.fnUntraced(function* (prefix: string) {
  const account = yield* accountOf(prefix)
  const [row] = yield* sql<{ used: number }>`
    SELECT coalesce(sum(tokens_in + tokens_out), 0)::float8 AS used FROM usage_daily
    WHERE key_id = ${account.key}::text::uuid AND model = 'm:latest'`
  const { totals } = yield* (yield* Meter).snapshot({ ...account, model: "m" }, Date.now())
  return { live: totals.day, used: row?.used ?? 0 }
})

inWorld(World)("limits for models", (test) => {
  test("when the requests of a minute for a model are used, then every replica refuses it by name, and other models go on", function* () {
    const [fake, registry, other] = [yield* Fake, yield* Registry, yield* otherReplica()]
    const { chat, prefix, tenant } = yield* keyOf()
    yield* registry.setModels(tenant, { aliases: { fast: "m" } })
    fake.always(answerOf(100))
    assert.deepStrictEqual(limitOf(yield* chat("m")).slice(0, 2), [null, "100000"])
    yield* operate("set-limits", "--key", prefix, "--model", "m:latest", "--rpm", "2")
    // An alias is its model.
    const first = yield* eventually(chat("fast"), (one) => limitOf(one)[0] !== null)
    assert.deepStrictEqual(limitOf(first).slice(0, 2), ["m:latest", "2"])
    const elsewhere = chat("m").pipe(Effect.provideService(Gateway, other))
    const refused = yield* eventually(elsewhere, ({ status }) => status === 429)
    assert.strictEqual(messageOf(refused), "the model's limit of 2 requests per minute reached")
    assert.deepStrictEqual(limitOf(refused), ["m:latest", "2", "0"])
    assert.match(refused.headers.get("retry-after") ?? "", /^([1-9]|[1-5]\d|6[01])$/)
    const another = yield* chat("other")
    assert.strictEqual(another.status, 200)
    assert.deepStrictEqual(limitOf(another).slice(0, 2), [null, "100000"])

    const why = yield* eventually(
      tollgateBeside("show-request", refused.headers.get("x-request-id") ?? ""),
      ({ code }) => code === 0
    )
    assert.include(why.stdout, "The key's limit of 2 requests a minute for m was reached")
    assert.include(why.stdout, `set-limits --key ${prefix} --model m --rpm n`)
    yield* operate("set-limits", "--key", prefix, "--model", "m", "--rpm", "none")
    const free = yield* eventually(chat("m"), ({ status }) => status === 200)
    assert.isNull(limitOf(free)[0])
  })

  test("when each key of a tenant has tokens a day for a model, then users share them, and the ledger brings them back after a loss", function* () {
    const fake = yield* Fake
    const { chat, prefix, tenant } = yield* keyOf()
    fake.always(answerOf(100))
    const by = (user: string, model = "m") => chat(model, { "x-user": user })
    yield* operate("set-end-user", "--key", prefix, "--header", "X-User")
    yield* operate("set-budget", "--key", prefix, "--each-user", "--daily", "1000")
    yield* operate("set-limits", "--tenant", tenant, "--model", "m", "--daily", "200")
    const first = yield* eventually(by("ada"), (one) => budgetOf(one)[0] === "model")
    assert.deepStrictEqual(budgetOf(first).slice(1, 3), ["day", "200"])
    assert.strictEqual(limitOf(first)[0], "m:latest")
    const refused = yield* eventually(by("bob"), ({ status }) => status === 429)
    assert.strictEqual(messageOf(refused), "the model's daily budget of 200 tokens is spent")
    assert.deepStrictEqual(budgetOf(refused), ["model", "day", "200", "0"])
    assert.strictEqual(refused.headers.get("x-should-retry"), "false")
    const another = yield* by("bob", "other")
    assert.strictEqual(another.status, 200)
    assert.deepStrictEqual(budgetOf(another).slice(0, 3), ["user", "day", "1000"])
    assert.isNull(limitOf(another)[0])
    const why = yield* eventually(
      tollgateBeside("show-request", refused.headers.get("x-request-id") ?? ""),
      ({ code }) => code === 0
    )
    assert.include(why.stdout, "The key's budget of 200 tokens a day for m is spent")
    assert.include(why.stdout, `set-limits --key ${prefix} --model m --daily n`)

    yield* Effect.flatMap(Redis, ({ send }) => send("FLUSHDB", []))
    assert.isUndefined((yield* counted(prefix)).live)
    assert.strictEqual((yield* by("cyd")).status, 429)
    const { live, used } = yield* eventually(counted(prefix), ({ live, used }) => live === used)
    assert.strictEqual(live, used)
    assert.isAtLeast(used, 200)
    // The key's own value comes before the tenant's.
    yield* operate("set-limits", "--key", prefix, "--model", "m", "--daily", "1M")
    const more = yield* eventually(by("ada"), ({ status }) => status === 200)
    assert.deepStrictEqual(budgetOf(more).slice(0, 3), ["user", "day", "1000"])
    yield* eventually(counted(prefix), ({ live, used }) => live === used)
  })
})
