/** Limits and budgets of each end user behind one key, over two replicas with the same stores. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { userAccountId } from "../../../src/domain/EndUser.ts"
import { Meter } from "../../../src/gates/meter/Meter.ts"
import { Redis } from "../../../src/infra/Redis.ts"
import { tollgateBeside } from "../../cli/inProcess.ts"
import { call, eventually, Fake, Gateway, hello, newKey, otherReplica } from "../../support/Gateway.ts"
import { rawRequest, talk } from "../../support/RawClient.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"
import { accountOf, answerOf, budgetOf, messageOf, World } from "./budgets.ts"

const header = "X-User"

/** A key whose requests name their users in a header. */
const keyOfMany = Effect.fnUntraced(function* () {
  const key = yield* newKey({ rpm: 100_000, tpm: 1_000_000_000, concurrent: 1000 })
  yield* tollgateBeside("set-end-user", "--key", key.prefix, "--header", header)
  const eachUser = (command: string, ...options: ReadonlyArray<string>) =>
    tollgateBeside(command, "--key", key.prefix, "--each-user", ...options)
  const chat = (user: string | undefined, more: Readonly<Record<string, unknown>> = {}) =>
    call("/v1/chat/completions", {
      secret: key.secret,
      body: hello({ max_tokens: 50, ...more }),
      ...(user === undefined ? {} : { headers: { [header]: user } })
    })
  return { ...key, chat, eachUser }
})

/** The live counter of a user, for all time. */
const counterOf = Effect.fnUntraced(function* (prefix: string, user: string) {
  const account = yield* accountOf(prefix)
  const owner = { ...account, user: userAccountId(account.key, user) }
  return (yield* (yield* Meter).snapshot(owner, Date.now())).totals.total
})

/** As a Redis that lost everything. */
const loseCounters = Effect.flatMap(Redis, ({ send }) => send("FLUSHDB", []))

inWorld(World)("end users of one key", (test) => {
  test("when a user has spent its budget, then every replica refuses it and says why, and the others go on", function* () {
    const [fake, other] = [yield* Fake, yield* otherReplica()]
    const { chat, eachUser, prefix } = yield* keyOfMany()
    yield* eachUser("set-budget", "--daily", "200", "--total", "1M")
    fake.always(answerOf(100))
    const first = yield* eventually(chat("ada"), ({ headers }) => headers.has("x-budget-scope"))
    assert.deepStrictEqual(budgetOf(first).slice(0, 3), ["user", "day", "200"])
    const left = Number(first.headers.get("x-budget-tokens-remaining"))
    const elsewhere = chat("ada").pipe(Effect.provideService(Gateway, other))
    if (left > 0) yield* eventually(elsewhere, (answer) => budgetOf(answer)[3] === "0")
    // The name in the body is the user's own word: it changes nothing.
    const refused = yield* chat("ada", { user: "bob" })
    assert.strictEqual(refused.status, 429)
    assert.strictEqual(messageOf(refused), "the user's daily budget of 200 tokens is spent")
    assert.deepStrictEqual(budgetOf(refused), ["user", "day", "200", "0"])
    assert.deepStrictEqual(budgetOf(yield* chat("bob")), ["user", "day", "200", "100"])

    const shown = yield* tollgateBeside("show-request", refused.headers.get("x-request-id") ?? "")
    assert.include(shown.stdout, "The user's budget of 200 tokens a day is spent")
    assert.include(shown.stdout, `set-budget --key ${prefix} --user ada --daily n`)
    const state = yield* tollgateBeside("show-budget", "--key", prefix, "--user", "ada")
    assert.match(state.stdout, /day\s+200\s+200\s+0\s+spent/)
    assert.notInclude(state.stderr, "for this name")
    const typo = yield* tollgateBeside("show-budget", "--key", prefix, "--user", "adda")
    assert.include(typo.stderr, "No tokens are counted for this name")
    yield* eachUser("set-budget", "--daily", "none", "--total", "none")
    const free = yield* eventually(chat("ada"), ({ status }) => status === 200)
    assert.deepStrictEqual(budgetOf(free), [null, null, null, null])
  })

  test("when one user has rules of its own, then they hold for it alone, on every replica, and a blocked one gets 403", function* () {
    const [fake, other] = [yield* Fake, yield* otherReplica()]
    const { chat, prefix, secret } = yield* keyOfMany()
    const ofAda = (command: string, ...options: ReadonlyArray<string>) =>
      tollgateBeside(command, "--key", prefix, "--user", "ada", "--yes", ...options)
    fake.always(answerOf(100))
    yield* ofAda("set-limits", "--rpm", "3")
    yield* ofAda("set-budget", "--daily", "200")
    const first = yield* eventually(chat("ada"), ({ headers }) => headers.has("x-budget-scope"))
    assert.deepStrictEqual(budgetOf(first).slice(0, 3), ["user", "day", "200"])
    assert.strictEqual(first.headers.get("x-ratelimit-limit-requests"), "3")
    const elsewhere = chat("ada").pipe(Effect.provideService(Gateway, other))
    yield* eventually(elsewhere, ({ status }) => status === 429)
    // Nobody else has an account of its own.
    assert.deepStrictEqual(budgetOf(yield* chat("bob")), [null, null, null, null])

    yield* ofAda("block-user")
    const asked = [
      chat("ada"),
      call("/api/chat", { secret, body: hello(), headers: { [header]: " ada " } }),
      call("/v1/models", { secret, method: "GET", headers: { [header]: "ada" } })
    ]
    for (const ask of asked) {
      const blocked = yield* eventually(ask, ({ status }) => status === 403)
      assert.strictEqual(messageOf(blocked), "forbidden")
      assert.isFalse(blocked.headers.has("x-hint"))
    }
    const blocked = yield* eventually(elsewhere, ({ status }) => status === 403)
    const why = yield* tollgateBeside("show-request", blocked.headers.get("x-request-id") ?? "")
    assert.include(
      why.stdout,
      `The end user ada of this key is blocked: "tollgate unblock-user --key ${prefix} --user ada"`
    )
    // Another name in the body unblocks nobody, and blocks nobody.
    assert.strictEqual((yield* chat("ada", { user: "bob" })).status, 403)
    assert.strictEqual((yield* chat("bob", { user: "ada" })).status, 200)
    const shown = yield* tollgateBeside("show-key", "--key", prefix)
    assert.match(shown.stdout, /user ada\s+blocked, rpm 3, daily 200\n/)

    yield* ofAda("unblock-user")
    yield* ofAda("set-limits", "--rpm", "none")
    yield* ofAda("set-budget", "--daily", "none")
    const free = yield* eventually(chat("ada"), ({ status }) => status === 200)
    assert.deepStrictEqual(budgetOf(free), [null, null, null, null])
    assert.notInclude((yield* tollgateBeside("show-key", "--key", prefix)).stdout, "user ada")
    const used = yield* eventually(
      tollgateBeside("show-usage", "--key", prefix, "--user", "ada", "--json"),
      ({ stdout }) => JSON.parse(stdout).tokens_in >= 100
    )
    assert.isAtLeast(JSON.parse(used.stdout).requests, 2)
  })

  test("when requests have no name, then they share one account, and no person has it", function* () {
    const fake = yield* Fake
    const { chat, eachUser, prefix } = yield* keyOfMany()
    yield* eachUser("set-limits", "--rpm", "2")
    fake.always(answerOf(10))
    const limitOf = ({ headers }: { readonly headers: Headers }) => headers.get("x-ratelimit-limit-requests")
    yield* eventually(chat("probe"), (answer) => limitOf(answer) === "2")
    assert.strictEqual((yield* chat(undefined)).status, 200)
    assert.strictEqual((yield* chat(" ")).status, 200)
    const refused = yield* chat(undefined)
    assert.deepStrictEqual(
      [refused.status, messageOf(refused)],
      [429, "the user's limit of 2 requests per minute reached"]
    )
    assert.strictEqual((yield* chat("ada")).status, 200)
    const shown = yield* tollgateBeside("show-request", refused.headers.get("x-request-id") ?? "")
    assert.include(shown.stdout, "The user's limit of 2 requests a minute was reached")
    assert.include(shown.stdout, `set-limits --key ${prefix} --each-user --rpm n`)
  })

  test("when a header names the user twice, then it is a 400 on a key with limits of each user, and no new person", function* () {
    const { url } = yield* Gateway
    const { chat, eachUser, prefix, secret } = yield* keyOfMany()
    const ask = (...headers: ReadonlyArray<string>) =>
      Effect.map(
        talk(url, rawRequest("GET", "/api/tags", [`Authorization: Bearer ${secret}`, ...headers])),
        ({ responses }) => ({ status: responses[0]?.status, text: responses[0]?.body ?? "" })
      )
    // The name decides nothing yet.
    const named = yield* eventually(
      Effect.andThen(
        ask("X-User: ada", "x-user: zoe"),
        tollgateBeside("requests", "--key", prefix, "--user", "ada, zoe")
      ),
      ({ stdout }) => stdout.includes(" 200 ")
    )
    assert.include(named.stdout, " 200 ")
    yield* eachUser("set-limits", "--rpm", "2")
    const refused = yield* eventually(ask("X-User: ada", "x-user: zoe"), ({ status }) => status === 400)
    assert.strictEqual(messageOf(refused), "x-user: expected it once")
    assert.strictEqual((yield* ask("X-User: ada", "X-User: ada")).status, 400)
    assert.strictEqual((yield* ask("X-User: ada")).status, 200)
    assert.strictEqual((yield* ask("Authorization: Bearer x", "X-User: ada", "X-User: zoe")).status, 401)
    // The same person, in three forms.
    const statuses = yield* Effect.forEach(["Zoe\u0308", " Zo\u00eb\u3000", "Zo\u00eb", "zo\u00eb"], (name) =>
      Effect.map(chat(Buffer.from(name).toString("latin1")), ({ status }) => status)
    )
    assert.deepStrictEqual(statuses, [200, 200, 429, 200])
  })

  test("when names are hashed, then no store has them, and each person still has an account", function* () {
    const fake = yield* Fake
    const { chat, eachUser, prefix } = yield* keyOfMany()
    yield* eachUser("set-budget", "--total", "100")
    yield* chat("early")
    yield* tollgateBeside("set-end-user", "--key", prefix, "--header", header, "--hash-users", "on")
    const isHashed = Effect.map(
      sql<{ readonly n: number }>`SELECT count(*)::int AS n FROM audit_log
          WHERE key_prefix = ${prefix} AND end_user ~ '^sha256:[0-9a-f]{32}$'`,
      ([row]) => (row?.n ?? 0) > 0
    )
    // Until every replica knows the new setting.
    yield* eventually(Effect.andThen(chat("early"), isHashed), (hashed) => hashed)
    fake.always(answerOf(100))
    // What was used under both names.
    const used = JSON.parse(
      (yield* tollgateBeside("show-usage", "--key", prefix, "--user", "early", "--json")).stdout
    )
    const [rows] = yield* sql<{ readonly n: number }>`
      SELECT sum(repeats)::int AS n FROM audit_log WHERE key_prefix = ${prefix}`
    assert.strictEqual(used.requests, rows?.n)
    yield* chat("ada@example.org")
    assert.strictEqual((yield* chat("ada@example.org")).status, 429)
    assert.strictEqual((yield* chat("bob@example.org")).status, 200)
    const state = yield* tollgateBeside("show-budget", "--key", prefix, "--user", "ada@example.org")
    assert.match(state.stdout, /total\s+100\s+100\s+0\s+spent/)
    const stored = yield* sql`SELECT request_id FROM audit_log WHERE end_user LIKE '%example.org'
        AND key_prefix = ${prefix}`
    assert.lengthOf(stored, 0)
  })

  test("when the live counters are lost, then those of a user come back from the ledger, to the token", function* () {
    const fake = yield* Fake
    const { chat, eachUser, prefix } = yield* keyOfMany()
    yield* eachUser("set-budget", "--total", "1000")
    fake.always(answerOf(100))
    yield* eventually(chat("ada"), ({ headers }) => headers.has("x-budget-scope"))
    yield* chat("bob")
    const before = (yield* counterOf(prefix, "ada")) ?? 0
    assert.isAtLeast(before, 100)
    yield* loseCounters
    assert.isUndefined(yield* counterOf(prefix, "ada"))
    const answer = yield* chat("ada")
    assert.deepStrictEqual(budgetOf(answer).slice(0, 3), ["user", "total", "1000"])
    const counted = yield* eventually(counterOf(prefix, "ada"), (tokens) => tokens === before + 100)
    assert.strictEqual(counted, before + 100)
  })
})
