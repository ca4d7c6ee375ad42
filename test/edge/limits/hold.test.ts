/** A stream that outgrows its hold takes more, and Postgres knows how much: nobody else is promised those tokens. */
import { assert } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { Registry } from "../../../src/admin/Registry.ts"
import { fake as wire } from "../../support/FakeBackend.ts"
import { call, eventually, Fake, hello, layerGateway, modelSpeaks, newKey } from "../../support/Gateway.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

inWorld(layerGateway())("a request of a model that nobody has heard", (test) => {
  test("when it begins, then it holds what is usual, and a client that leaves is charged all of it", function* () {
    const backend = yield* Fake
    const { prefix, secret } = yield* newKey()
    backend.script({ does: "hang" })
    const request = yield* Effect.forkChild(call("/api/chat", { secret, body: hello() }), {
      startImmediately: true
    })
    const held = Effect.map(
      sql<{ readonly held: bigint }>`SELECT held FROM intents WHERE key_prefix = ${prefix}`,
      ([row]) => Number(row?.held ?? 0)
    )
    assert.strictEqual(yield* eventually(held, (tokens) => tokens > 0), 10 + 2048)
    // The intent is written before the call is made.
    yield* backend.until(() => backend.requests.length > 0)
    assert.deepInclude(backend.requests.at(-1)?.body?.["options"], { num_predict: 65_536 })
    yield* Fiber.interrupt(request)
    const rows = yield* eventually(
      sql<{ readonly tokens: number; readonly usage_source: string }>`
          SELECT tokens_out::float8 AS tokens, usage_source FROM audit_log
          WHERE key_prefix = ${prefix} AND status = 499`,
      (found) => found.length > 0
    )
    assert.deepStrictEqual(rows, [{ tokens: 2048, usage_source: "estimated" }])
  })
})

inWorld(layerGateway({ CONCURRENCY_LEASE_S: "3" }))("a hold that grew", (test) => {
  test("when the model has shown output, then it begins small: fifty at once are answered on a budget of 20,000", function* () {
    const registry = yield* Registry
    const { prefix, secret } = yield* newKey({ concurrent: 50 })
    yield* registry.changeKey(prefix, { budgetDaily: 20_000 })
    yield* modelSpeaks
    const answers = yield* Effect.forEach(
      Array.from({ length: 50 }),
      () => call("/api/chat", { secret, body: hello() }),
      { concurrency: "unbounded" }
    )
    assert.deepStrictEqual(new Set(answers.map(({ status }) => status)), new Set([200]))
  })

  test("when it grew, then the intent has it with the next heartbeat, together with what was used", function* () {
    const backend = yield* Fake
    const { secret } = yield* newKey()
    yield* modelSpeaks
    backend.script({
      does: "stream",
      lines: Array.from({ length: 600 }, () => wire.chat("x")),
      ends: "hang"
    })
    const stream = yield* Effect.forkChild(call("/api/chat", { secret, body: hello() }), {
      startImmediately: true
    })
    const intent = Effect.map(
      sql<{ readonly held: bigint; readonly used: bigint }>`
          SELECT held, tokens_in + tokens_out AS used FROM intents`,
      ([row]) => row
    )
    const first = yield* eventually(intent, (row) => row !== undefined)
    assert.isBelow(Number(first?.held), 300)
    // A heartbeat may come while the hold is being extended: the one after it has caught up.
    const later = yield* eventually(intent, (row) => Number(row?.used) >= 600 && Number(row?.held) >= 600)
    assert.isAtLeast(Number(later?.held), Number(later?.used))
    yield* Fiber.interrupt(stream)
  })
})
