/** Traces go to a collector that is gone, or takes everything and answers nothing: requests do not notice. */
import { createServer, type Socket } from "node:net"
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Logger, References, Scope } from "effect"
import { jsonLine } from "../../src/observability/logging.ts"
import { layerTracing } from "../../src/observability/tracing.ts"
import { call, eventually, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { freePort } from "../support/servers/processes.ts"
import { atMost } from "../support/wait.ts"
import { inWorld, testWith } from "../support/testWith.ts"

class Said extends Context.Service<Said, ReadonlyArray<string>>()("test/Said") {}

/** Every log line from warnings up, of the tracer's own fibers too. */
const layerSaid = Layer.unwrap(
  Effect.sync(() => {
    const said: Array<string> = []
    return Layer.mergeAll(
      Layer.succeed(Said, said),
      Logger.layer([Logger.make((options) => void said.push(jsonLine.log(options)))]),
      Layer.succeed(References.MinimumLogLevel, "Warn")
    )
  })
)

const tracedTo = (url: string) =>
  layerTracing({ otlpEndpoint: new URL(url), otlpSampleRatio: 1 }).pipe(Layer.provideMerge(layerSaid))

const layerGone = layerGateway({ LOG_LEVEL: "warn" }).pipe(
  Layer.provideMerge(Layer.unwrap(Effect.map(freePort, (port) => tracedTo(`http://127.0.0.1:${port}`))))
)

inWorld(layerGone)("with a collector that is gone", (test) => {
  test("when requests come, then every one is served, and the log complains once", function* () {
    const said = yield* Said
    const { secret } = yield* newKey()
    const chat = call("/api/chat", { secret, body: hello({ stream: false }) })
    const answered = Effect.map(
      Effect.all(
        Array.from({ length: 20 }, () => chat),
        { concurrency: 5 }
      ),
      (answers) => assert.deepStrictEqual([...new Set(answers.map(({ status }) => status))], [200])
    )
    const lost = () => said.filter((line) => line.includes("traces lost"))
    yield* answered
    yield* eventually(Effect.sync(lost), (lines) => lines.length > 0)
    // The exporter tries again meanwhile.
    for (let round = 0; round < 6; round += 1) yield* Effect.andThen(answered, Effect.sleep("700 millis"))
    assert.lengthOf(lost(), 1)
    assert.match(lost()[0] ?? "", /"message":"traces lost".*"reason":"no answer from the collector"/)
  })
})

/** Takes connections and reads; counts how many requests it was ever owed an answer to at a time. */
const makeSilence = Effect.gen(function* () {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on("error", () => socket.destroy())
    socket.resume()
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => void server.listen(0, "127.0.0.1", () => resume(Effect.void))),
    () =>
      Effect.sync(() => {
        server.close()
        for (const socket of sockets) socket.destroy()
      })
  )
  const address = server.address()
  return {
    url: `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`,
    taken: () => sockets.size
  }
})

const test = testWith(it.live)

test("when a collector never answers, then a bounded number of batches waits for it, and the process ends in time", function* () {
  const silence = yield* makeSilence
  const scope = yield* Scope.make()
  const context = yield* Layer.build(tracedTo(silence.url)).pipe(Scope.provide(scope))
  const span = Effect.withSpan(Effect.void, "one of many").pipe(
    Effect.provideService(References.TracerEnabled, true)
  )
  yield* Effect.gen(function* () {
    for (let batch = 0; batch < 40; batch += 1) {
      yield* Effect.repeat(span, { times: 1000 })
      yield* Effect.sleep("5 millis")
    }
  }).pipe(Effect.provideContext(context))
  yield* eventually(Effect.sync(silence.taken), (taken) => taken > 0)
  assert.isAtMost(silence.taken(), 8)
  const said = Context.get(context, Said)
  assert.lengthOf(said, 1)
  // On a busy machine the first batch may have waited too long before there are too many.
  assert.match(
    said[0] ?? "",
    /"message":"traces lost".*"reason":"(?:the collector is too slow|no answer from the collector)"/
  )
  const ended = yield* Scope.close(scope, Exit.void).pipe(Effect.timeoutOption(atMost(8000)))
  assert.strictEqual(ended._tag, "Some")
})
