/**
 * Two teams with a model each before a real server that holds one. Each load is a new process of the server, so the loads are counted
 * whatever the server and the gateway say of them.
 */
import { assert, layer } from "@effect/vitest"
import { Console, Effect, Fiber, Ref } from "effect"
import { SqlClient } from "effect/sql"
import { call, newKey } from "../test/support/Gateway.ts"
import { layerOwnGateway } from "./RealGateway.ts"
import { OwnOllama } from "./RealOllama.ts"

const live = { excludeTestServices: true, timeout: 600_000 } as const
const [team, each] = [4, 8]

/** How often the server loaded a model, and what the audit says of that. */
const measured = Ref.makeUnsafe<Readonly<Record<string, number>>>({})

const run = Effect.fnUntraced(function* (name: string) {
  const [server, sql] = [yield* OwnOllama, yield* SqlClient.SqlClient]
  const seen = new Set<number>()
  const watching = Effect.forever(
    Effect.delay(
      Effect.sync(() => server.runners().forEach((pid) => void seen.add(pid))),
      "10 millis"
    )
  )
  const watch = yield* Effect.forkScoped(watching)
  const since = performance.now()
  const ask = Effect.fnUntraced(function* (secret: string, model: string) {
    for (let n = 0; n < each; n++) {
      const body = { model, prompt: "hello", raw: true, stream: false, options: { num_predict: 8 } }
      const { status, text } = yield* call("/api/generate", { secret, body })
      assert.strictEqual(status, 200, text)
    }
  })
  yield* Effect.forEach(
    ["plain", "split"],
    Effect.fnUntraced(function* (model) {
      const { secret } = yield* newKey()
      yield* Effect.all(
        Array.from({ length: team }, () => ask(secret, model)),
        { concurrency: "unbounded" }
      )
    }),
    { concurrency: "unbounded" }
  )
  const took = performance.now() - since
  yield* Fiber.interrupt(watch)
  const [said] = yield* sql<{ readonly loads: number; readonly ms: number }>`
    SELECT sum(loads)::float8 AS loads, sum(load_ms)::float8 AS ms FROM usage_daily`
  const told = `the audit has ${said?.loads} of ${Math.round((said?.ms ?? 0) / 1000)} s`
  yield* Console.log(`${name}: ${seen.size} loads in ${Math.round(took / 1000)} s; ${told}`)
  yield* Ref.update(measured, (others) => ({ ...others, [name]: seen.size }))
  return { loads: seen.size, said: said?.loads ?? 0 }
}, Effect.scoped)

const queue = { BACKEND_MAX_CONCURRENT: "2", QUEUE_MAX_WAIT_MS: "600000" }
const holdsOne = { OLLAMA_MAX_LOADED_MODELS: "1" }

// A queue that takes all models to fit together gives no turns.
layer(layerOwnGateway(holdsOne, { ...queue, BACKEND_MAX_LOADED_MODELS: "64" }), live)(
  "without turns",
  (it) => {
    it.effect("when two teams ask for a model each, then the server loads them again and again", () =>
      Effect.gen(function* () {
        assert.isAbove((yield* run("without turns")).loads, 8)
      })
    )
  }
)

layer(layerOwnGateway(holdsOne, { ...queue, BACKEND_MAX_LOADED_MODELS: "1" }), live)("with turns", (it) => {
  it.effect(
    "when two teams ask for a model each, then the server loads them less than half as often, and the audit has each load",
    () =>
      Effect.gen(function* () {
        const { loads, said } = yield* run("with turns")
        const { "without turns": before = 0 } = yield* Ref.get(measured)
        assert.isAtMost(2 * loads, before)
        assert.isAtMost(Math.abs(said - loads), 1)
      })
  )
})

layer(layerOwnGateway(holdsOne, queue), live)("with turns, learned", (it) => {
  it.effect("when nobody says how many models fit, then the loads are less than half as many too", () =>
    Effect.gen(function* () {
      const { loads } = yield* run("learned")
      const { "without turns": before = 0 } = yield* Ref.get(measured)
      assert.isAtMost(2 * loads, before)
    })
  )
})
