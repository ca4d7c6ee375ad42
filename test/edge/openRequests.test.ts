/** What runs and waits now, over two replicas: `requests --open`, and the end of all of it with its key. */
import { assert } from "@effect/vitest"
import { Effect, Fiber, Schema } from "effect"
import { tollgateBeside } from "../cli/inProcess.ts"
import { json, succeeds } from "../cli/tollgate.ts"
import { fake } from "../support/FakeBackend.ts"
import {
  call,
  eventually,
  Fake,
  Gateway,
  hello,
  layerGateway,
  newKey,
  otherReplica,
  rowOf
} from "../support/Gateway.ts"
import { sql } from "../support/sql.ts"
import { inWorld } from "../support/testWith.ts"

// How long a command waits for an answer: on a busy machine a replica takes longer.
process.env["KEY_FRESHNESS_MS"] = "60000"

const env = { BACKEND_MAX_CONCURRENT: "1", QUEUE_MAX_WAIT_MS: "100000" }

const Open = Schema.Array(
  Schema.Struct({
    waits: Schema.Boolean,
    key: Schema.String,
    name: Schema.NullOr(Schema.String),
    tenant: Schema.String,
    model: Schema.String,
    tokens_out: Schema.Finite,
    held: Schema.Finite
  })
)

const Users = Schema.Array(Schema.Struct({ key: Schema.String, end_user: Schema.NullOr(Schema.String) }))

const Disabled = Schema.Struct({
  status: Schema.String,
  requests: Schema.Struct({ stopped: Schema.Finite, running: Schema.Finite })
})

const endless = {
  does: "stream",
  lines: Array.from({ length: 2000 }, (_, i) => fake.chat(` ${i}`)),
  gapMs: 40
} as const

const detailOf = (id: string | null) =>
  Effect.map(
    sql<{
      readonly detail: string | null
    }>`SELECT detail FROM audit_log WHERE request_id = ${id}::text::uuid`,
    ([row]) => row?.detail
  )

inWorld(layerGateway(env))("requests that run and wait", (test) => {
  test("when a key is disabled, then its requests go on, and with --stop-running all of them end in order", function* () {
    const other = yield* otherReplica(env)
    const on = Effect.provideService(Gateway, other)
    const backend = yield* Fake
    const mine = yield* newKey()
    const theirs = yield* newKey()
    // The first request after the start waits until every replica could have named its own.
    yield* eventually(
      call("/api/chat", { secret: theirs.secret, body: hello() }),
      ({ status }) => status === 200
    )
    const seen = backend.requests.length
    backend.script(endless)
    const chat = call("/api/chat", { secret: mine.secret, body: hello() })
    const running = yield* Effect.forkChild(chat)
    yield* backend.until(() => backend.requests.length === seen + 1)
    const waiting = yield* Effect.forkChild(on(chat))
    yield* eventually(tollgateBeside("requests", "--open"), ({ stdout }) => /^waits/m.test(stdout))
    const queued = yield* Effect.forkChild(call("/api/chat", { secret: theirs.secret, body: hello() }))

    const listed = yield* eventually(
      Effect.flatMap(tollgateBeside("requests", "--open", "--json"), (ran) => json(Open, ran)),
      (rows) => rows.length === 3 && rows.some(({ tokens_out }) => tokens_out > 3)
    )
    assert.deepStrictEqual(
      listed.map(({ key, waits }) => [key, waits]),
      [
        [mine.prefix, false],
        [mine.prefix, true],
        [theirs.prefix, true]
      ]
    )
    assert.deepInclude(listed[0], { name: "k", tenant: mine.tenant, model: "m:latest" })
    assert.isAbove(listed[0]?.held ?? 0, listed[0]?.tokens_out ?? 0)
    const filtered = yield* tollgateBeside("requests", "--open", "--tenant", theirs.tenant)
    assert.match(filtered.stdout, /^waits +\d+s +\S+ +tg_\S+ +k +- +m:latest/m)
    assert.notInclude(filtered.stdout, mine.prefix)

    const disabled = yield* tollgateBeside("disable-key", "--key", mine.prefix)
    succeeds(disabled)
    assert.include(disabled.stderr, "In force on 2 replicas.")
    assert.include(disabled.stderr, "2 requests of the key go on; --stop-running ends them.")
    const refused = [yield* chat, yield* on(chat)].map(({ status }) => status)
    assert.deepStrictEqual(refused, [401, 401], "it was in force when the command returned")

    const stopped = yield* tollgateBeside("disable-key", "--key", mine.prefix, "--stop-running", "--json")
    assert.deepStrictEqual(yield* json(Disabled, stopped), {
      status: "disabled",
      requests: { stopped: 2, running: 0 }
    })
    const [ran, waited] = [yield* Fiber.join(running), yield* Fiber.join(waiting)]
    assert.strictEqual(ran.text.trimEnd().split("\n").at(-1), '{"error":"service temporarily unavailable"}')
    assert.strictEqual(waited.status, 503)
    assert.strictEqual((yield* Fiber.join(queued)).status, 200, "others go on")

    const row = yield* rowOf(ran)
    const frames = ran.text.trimEnd().split("\n").length - 1
    assert.deepInclude(row, { status: 503, tokens_out: BigInt(frames), usage_source: "counted" })
    const stoppedWaiting = yield* rowOf(waited)
    assert.deepInclude(stoppedWaiting, { status: 503, tokens_in: 0n, tokens_out: 0n })
    for (const { headers } of [ran, waited])
      assert.strictEqual(yield* detailOf(headers.get("x-request-id")), "gateway: stopped by an operator")
    const shown = yield* tollgateBeside("show-request", ran.headers.get("x-request-id") ?? "")
    assert.include(shown.stdout, "An operator ended it with its key (--stop-running).")
    const open = yield* eventually(
      sql`SELECT 1 FROM intents WHERE key_prefix = ${mine.prefix}`,
      (rows) => rows.length === 0
    )
    assert.lengthOf(open, 0)

    succeeds(yield* tollgateBeside("enable-key", "--key", mine.prefix))
    assert.strictEqual((yield* chat).status, 200, "an earlier stop is over")
  })

  test("when a key stores hashes of its users, then --user finds a person by the name, and nobody else", function* () {
    const backend = yield* Fake
    const { prefix, secret } = yield* newKey()
    const hashing = ["--key", prefix, "--header", "X-User", "--hash-users", "on"]
    succeeds(yield* tollgateBeside("set-end-user", ...hashing))
    const seen = backend.requests.length
    backend.script(endless)
    const chat = call("/api/chat", { secret, body: hello(), headers: { "X-User": "ada" } })
    const running = yield* Effect.forkChild(chat)
    yield* backend.until(() => backend.requests.length === seen + 1)
    const users = (user: string) =>
      Effect.flatMap(tollgateBeside("requests", "--open", "--user", user, "--json"), (ran) =>
        json(Users, ran)
      )
    const found = yield* eventually(users("ada"), ({ length }) => length === 1)
    assert.deepStrictEqual([found.length, found[0]?.key], [1, prefix])
    const stored = found[0]?.end_user ?? ""
    assert.match(stored, /^sha256:/)
    assert.deepStrictEqual(yield* users(stored), found)
    assert.deepStrictEqual(yield* users("bob"), [])
    succeeds(yield* tollgateBeside("disable-key", "--key", prefix, "--stop-running"))
    yield* Fiber.join(running)
  })

  test("when a budget or a limit is set, then the next request has it, on each replica", function* () {
    const other = yield* otherReplica(env)
    const { prefix, secret } = yield* newKey()
    const budgetOf = Effect.map(call("/api/tags", { secret }), ({ headers }) => [
      headers.get("x-budget-tokens-limit"),
      headers.get("x-ratelimit-limit-requests")
    ])
    const both = Effect.all([budgetOf, Effect.provideService(budgetOf, Gateway, other)])
    yield* both
    for (const n of ["70", "71", "72"]) {
      succeeds(yield* tollgateBeside("set-budget", "--key", prefix, "--daily", n))
      succeeds(yield* tollgateBeside("set-limits", "--key", prefix, "--rpm", n))
      assert.deepStrictEqual(yield* both, [
        [n, n],
        [n, n]
      ])
    }
  })
})
