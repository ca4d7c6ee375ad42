/** Each bound of a gateway, divided among its workers. */
import { assert, it } from "@effect/vitest"
import { Result } from "effect"
import { readSettings } from "../../../src/Settings.ts"
import { workersOf } from "../../../src/workers/count.ts"
import { databaseConnectionsOf, sharesOf } from "../../../src/workers/shares.ts"

const settingsOf = (env: Record<string, string>) => Result.getOrThrow(readSettings(env))
const stores = {
  DATABASE_URL: "postgres://db/x",
  REDIS_URL: "redis://cache",
  BACKEND_URL: "http://ollama:11434"
}

it("when there is one worker, then it has each bound whole", () => {
  assert.deepStrictEqual(sharesOf(settingsOf({}), 1, 8), {
    requestBodiesMaxBytes: 67_108_864,
    unreadAnswersMaxBytes: 100_663_296,
    connections: 16_384,
    connectionsPerAddress: 4096,
    newConnections: { perSecond: 300, burst: 1000 },
    anonymousRefusals: { perSecond: 200, burst: 100 },
    anonymousRowsPerMinute: 10,
    anonymousBacklog: 5000,
    databaseConnections: 10,
    verifies: 3,
    spareVerifies: 1
  })
})

it("when there are several workers, then their shares together are the bound, but for rounding", () => {
  const whole = sharesOf(settingsOf({}), 1, 64)
  for (const workers of [2, 3, 4, 7, 16, 64]) {
    const own = sharesOf(settingsOf({}), workers, 64)
    for (const [total, share] of [
      [whole.connections, own.connections],
      [whole.connectionsPerAddress, own.connectionsPerAddress],
      [whole.newConnections.perSecond, own.newConnections.perSecond],
      [whole.newConnections.burst, own.newConnections.burst],
      [whole.anonymousRefusals.perSecond, own.anonymousRefusals.perSecond],
      [whole.anonymousRefusals.burst, own.anonymousRefusals.burst],
      [whole.anonymousRowsPerMinute, own.anonymousRowsPerMinute],
      [whole.anonymousBacklog, own.anonymousBacklog]
    ] as const) {
      assert.isAtLeast(share * workers, total)
      assert.isBelow(share * workers, total + workers)
    }
  }
})

it("when workers are many, then each can still take a body and an answer of the largest size", () => {
  const own = sharesOf(settingsOf({ MAX_REQUEST_BODY_BYTES: "8388608" }), 16, 16)
  assert.strictEqual(own.requestBodiesMaxBytes, 2 * 8_388_608)
  assert.strictEqual(own.unreadAnswersMaxBytes, 48 * 2 ** 20)
  const small = sharesOf(settingsOf({ UNREAD_ANSWERS_MAX_BYTES: "1048576" }), 16, 16)
  assert.strictEqual(small.unreadAnswersMaxBytes, 1_048_576)
})

it("when connections to the database are not set, then they are ten, and at least five for each worker; else as set", () => {
  const connections = (env: Record<string, string>, workers: number) => {
    const settings = settingsOf(env)
    return [databaseConnectionsOf(settings, workers), sharesOf(settings, workers).databaseConnections]
  }
  assert.deepStrictEqual(connections({}, 1), [10, 10])
  assert.deepStrictEqual(connections({}, 2), [10, 5])
  assert.deepStrictEqual(connections({}, 4), [20, 5])
  assert.deepStrictEqual(connections({ DATABASE_CONNECTIONS: "30", WORKERS: "4" }, 4), [30, 7])
})

it("when a gateway keeps its state in one process, then it has one worker; else as many as cores, or as set", () => {
  assert.strictEqual(workersOf(settingsOf({ WORKERS: "auto" }), 8), 1)
  assert.strictEqual(workersOf(settingsOf({ WORKERS: "4", DATABASE_URL: stores.DATABASE_URL }), 8), 1)
  assert.strictEqual(workersOf(settingsOf(stores), 8), 1)
  assert.strictEqual(workersOf(settingsOf({ ...stores, WORKERS: "auto" }), 8), 8)
  assert.strictEqual(workersOf(settingsOf({ ...stores, WORKERS: "auto" }), 128), 64)
  assert.strictEqual(workersOf(settingsOf({ ...stores, WORKERS: "3" }), 8), 3)
})
