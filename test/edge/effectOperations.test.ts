/**
 * What a request costs in operations of Effect, on memory twins behind a real socket and a real client of the model server. The bounds
 * are close: 83 and 14.6 run, and a few more on a busy machine, where an answer comes in more reads. Lower them when less runs. Node,
 * the stores and our own code cost the rest (bench/RESULTS.md).
 */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { layerOllama } from "../../src/backend/ollama/client.ts"
import { CountingScheduler } from "../support/CountingScheduler.ts"
import { fake, makeFakeBackend } from "../support/FakeBackend.ts"
import { hello } from "../support/Gateway.ts"
import { layerInMemory, memoryKey } from "../support/inMemory.ts"
import { ask } from "../support/posting.ts"
import { testWith } from "../support/testWith.ts"

const most = { whole: 100, frame: 17 }
const rounds = 12

const test = testWith(it.live)

test("when a request is answered, then it takes no more operations than allowed, nor does each frame of a stream", function* () {
  const backend = yield* makeFakeBackend
  backend.setModels(["m:latest"])
  const scheduler = new CountingScheduler()
  const key = memoryKey({ limits: { rpm: 1_000_000, tpm: 1_000_000_000, concurrent: 1000 } })
  const timeouts = { connectTimeoutMs: 60_000, firstByteTimeoutMs: 600_000, idleTimeoutMs: 600_000 }
  const gateway = layerInMemory({
    keys: [key],
    backend: layerOllama({ url: new URL(backend.url), ...timeouts })
  }).pipe(Layer.provide(scheduler.layer))
  yield* Effect.gen(function* () {
    const url = HttpServer.formatAddress((yield* HttpServer.HttpServer).address)
    const chat = (stream: boolean) =>
      ask(`${url}/v1/chat/completions`, { secret: key.secret, body: hello({ stream }) })
    /** The fewest of some equal requests: what the gateway does by the clock makes the others longer. */
    const fewest = Effect.fnUntraced(function* (stream: boolean, frames: number) {
      const texts = Array.from({ length: frames - 1 }, (_, n) => fake.chat(` ${n}`))
      // Frames with a pause come in reads of their own.
      backend.always({
        does: "stream",
        lines: [...texts, fake.done("chat", { eval_count: frames })],
        gapMs: 10
      })
      yield* chat(stream)
      const counts: Array<number> = []
      for (let n = 0; n < rounds; n += 1) {
        const before = scheduler.count
        yield* chat(stream)
        // What ends a request comes a moment after the last byte.
        yield* Effect.sleep("10 millis")
        counts.push(scheduler.count - before)
      }
      return Math.min(...counts)
    })
    const [whole, short, long] = [yield* fewest(false, 1), yield* fewest(true, 2), yield* fewest(true, 12)]
    const frame = (long - short) / 10
    assert.isAtMost(whole, most.whole)
    assert.isAtMost(frame, most.frame)
    // Fewer would be no chat.
    assert.isAbove(whole, 30)
    assert.isAbove(frame, 3)
  }).pipe(Effect.provide(gateway))
})
