/** When the facts of the Redis servers are read before a command, and what happens when a server is not suitable. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import type { RedisInfo } from "../../../../../src/infra/Redis.ts"
import { checkRequirements } from "../../../../../src/gates/meter/redis/requirements.ts"

const suitable: RedisInfo = { runId: "a", version: "7.2.0", evictionPolicy: "noeviction" }

/** Servers whose facts a test changes; it counts how often they are read. */
const makeServers = () => {
  const state: {
    known: ReadonlyArray<RedisInfo> | undefined
    found: ReadonlyArray<RedisInfo>
    reads: number
  } = {
    known: undefined,
    found: [suitable],
    reads: 0
  }
  const servers = Effect.sync(() => {
    state.reads += 1
    state.known = state.found
    return state.found
  })
  return { state, whenFit: checkRequirements({ servers, knownServers: () => state.known }, () => 0) }
}

it.effect("when the servers are known and suitable, then they are not read for each command", () =>
  Effect.gen(function* () {
    const { state, whenFit } = makeServers()
    const asked = whenFit(() => Effect.succeed("done"))
    assert.deepStrictEqual([yield* asked, yield* asked, yield* asked], ["done", "done", "done"])
    assert.strictEqual(state.reads, 1)
  })
)

it.effect(
  "when the servers are not known any more, then the next command reads them, and each command checks new facts",
  () =>
    Effect.gen(function* () {
      const { state, whenFit } = makeServers()
      const asked = whenFit(() => Effect.succeed("done"))
      yield* asked
      state.known = undefined
      state.found = [suitable, { ...suitable, evictionPolicy: "allkeys-lru" }]
      const error = yield* Effect.flip(asked)
      assert.include(String(error.cause), "allkeys-lru")
      // They are known now, and still not suitable.
      yield* Effect.flip(asked)
      state.known = undefined
      state.found = []
      assert.include(String((yield* Effect.flip(asked)).cause), "no Redis")
      state.found = [suitable]
      assert.strictEqual(yield* asked, "done")
    })
)

it.effect("when a command waits for its turn, then it is made when it is run", () =>
  Effect.gen(function* () {
    const { whenFit } = makeServers()
    let made = 0
    const asked = whenFit(() => Effect.succeed(++made))
    assert.strictEqual(made, 0)
    assert.deepStrictEqual([yield* asked, yield* asked], [1, 2])
  })
)
