/** A stream that fails while its row cannot be written still ends with a line that says so. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Stream } from "effect"
import { HttpServer } from "effect/http"
import { AuditMemory } from "../../support/twins/Audit.ts"
import { layerMemory as layerBackend, replyWith } from "../../support/twins/Backend.ts"
import { BackendFailed } from "../../../src/domain/Errors.ts"
import { layerInMemory, memoryKey } from "../../support/inMemory.ts"
import { modelNamed } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"
import { ask } from "../../support/posting.ts"

const test = testWith(it.live)

test("when the audit is down and the model server breaks off, then the client reads that the service is unavailable", function* () {
  const key = memoryKey({})
  const services = yield* Layer.build(
    layerInMemory({
      keys: [key],
      backend: layerBackend({
        models: Effect.succeed([modelNamed("m:latest")]),
        reply: () =>
          Effect.succeed(
            replyWith(["a", "b"], 9).pipe(
              Stream.take(1),
              Stream.concat(
                Stream.unwrap(Effect.as(takeDown, Stream.fail(new BackendFailed({ fault: "cut" }))))
              )
            )
          )
      })
    })
  )
  const takeDown: Effect.Effect<void> = Effect.suspend(() => Context.get(services, AuditMemory).setDown(true))
  const { address } = Context.get(services, HttpServer.HttpServer)
  const { text } = yield* ask(`${HttpServer.formatAddress(address)}/api/chat`, {
    secret: key.secret,
    body: { model: "m", messages: [{ role: "user", content: "hi" }] }
  })
  const lines = text.trim().split("\n")
  assert.include(lines[0], '"content":"a"')
  assert.strictEqual(lines.at(-1), '{"error":"service temporarily unavailable"}')
})
