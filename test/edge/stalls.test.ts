import { connect } from "node:net"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { fake } from "../support/FakeBackend.ts"
import { eventually, Fake, Gateway, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { rawPost } from "../support/RawClient.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

/** An answer may be so large that it fills the kernel's buffers. */
const env = { CLIENT_STALL_TIMEOUT_MS: "400", NUM_PREDICT_CAP: "1000000" }

inWorld(layerGateway(env))("a client that stops reading", (test) => {
  test("when its time is up, then it is cut, backend and slot are free, and the row says 499 and charges what was sent", function* () {
    const [backend, { url }] = [yield* Fake, yield* Gateway]
    const { secret, prefix } = yield* newKey({ concurrent: 1, tpm: 1_000_000_000 })
    backend.script({ does: "flood", line: `${JSON.stringify(fake.chat("x"))}\n`.repeat(64) })
    const socket = connect(Number(new URL(url).port), "127.0.0.1")
    yield* Effect.addFinalizer(() => Effect.sync(() => socket.destroy()))
    socket.on("error", () => socket.destroy())
    socket.write(rawPost("/api/chat", secret, JSON.stringify(hello()), []))
    // Takes the head and the first frames, then never reads again.
    yield* Effect.callback<void>((resume) => {
      socket.once("data", () => {
        socket.pause()
        resume(Effect.void)
      })
    })
    const rows = yield* eventually(
      sql<{
        status: number
        tokens_out: bigint
      }>`SELECT status, tokens_out FROM audit_log WHERE key_prefix = ${prefix}`,
      (rows) => rows.length > 0
    )
    assert.strictEqual(rows[0]?.status, 499)
    assert.isTrue((rows[0]?.tokens_out ?? 0n) > 0n)
    yield* backend.until(() => backend.requests.at(-1)?.closedAt !== undefined)
  })
})
