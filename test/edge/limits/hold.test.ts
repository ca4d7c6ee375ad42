/** A stream that outgrows its hold takes more, and Postgres knows how much: nobody else is promised those tokens. */
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { fake as wire } from "../../support/FakeBackend.ts"
import { call, eventually, Fake, hello, layerGateway, newKey } from "../../support/Gateway.ts"

const live = { excludeTestServices: true, timeout: 30_000 } as const

layer(layerGateway({ CONCURRENCY_LEASE_S: "3" }), live)("a hold that grew", (it) => {
  it.effect("is in the intent with the next heartbeat, together with what was used", () =>
    Effect.gen(function* () {
      const [backend, sql] = [yield* Fake, yield* SqlClient.SqlClient]
      const { secret } = yield* newKey()
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
  )
})
