/** What the siblings of a dead worker give back, on real stores. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { FairQueue } from "../../../src/gates/queue/FairQueue.ts"
import { SuspectAccounts } from "../../../src/gates/limits/SuspectAccounts.ts"
import { Meter, Missing } from "../../../src/gates/meter/Meter.ts"
import { layerPostgres as layerReplicas } from "../../../src/replicas/postgres.ts"
import { Replicas } from "../../../src/replicas/Replicas.ts"
import { makeChannel, type Wire } from "../../../src/workers/Channel.ts"
import { toWorker } from "../../../src/workers/protocol.ts"
import { makeRequestIds } from "../../../src/workers/requestIds.ts"
import { layerHealing } from "../../../src/workers/worker/healing.ts"
import { makeWorkerLinkOn, WorkerLink } from "../../../src/workers/worker/WorkerLink.ts"
import { eventually } from "../../support/wait.ts"
import { ask, claimsOf, granted } from "../../contract/Meter.ts"
import { world } from "./support.ts"

const identity = { number: 1, of: 2, id: "01a1fe92-0000-4000-8000-000000000001", first: false, mark: 7 }
const [dead, alive] = [makeRequestIds(1), makeRequestIds(2)]
const casualty = { id: "01a1fe92-0000-4000-8000-000000000002", mark: 1, accounts: [{ group: "g", key: "k" }] }

/** A worker that heals, and the primary's end of its channel. */
const makeHealer = Effect.gen(function* () {
  const ends = {
    worker: new Set<(message: unknown) => void>(),
    primary: new Set<(message: unknown) => void>()
  }
  const wire = (own: "worker" | "primary", other: "worker" | "primary"): Wire => ({
    send: (message) => ends[other].forEach((listener) => listener(message)),
    listen: (listener) => {
      ends[own].add(listener)
      return () => void ends[own].delete(listener)
    }
  })
  const forgotten: Array<string> = []
  const link = yield* makeWorkerLinkOn(identity, wire("worker", "primary"))
  yield* Layer.build(
    layerHealing.pipe(
      Layer.provide(Layer.succeed(WorkerLink, link)),
      Layer.provide(layerReplicas),
      Layer.provide(Layer.succeed(SuspectAccounts, { add: () => undefined })),
      Layer.provide(
        Layer.succeed(FairQueue, {
          limited: true,
          enter: () => Effect.die("not here"),
          forget: (replica) => Effect.sync(() => void forgotten.push(replica)),
          status: () => ({ running: 0, waiting: new Map() })
        })
      )
    )
  )
  const primary = yield* makeChannel(wire("primary", "worker"))
  return { heal: primary.ask(toWorker.heal, casualty, 10_000), forgotten }
})

layer(world, { excludeTestServices: true, timeout: 60_000 })("the healing of a dead worker", (it) => {
  it.effect(
    "when it had slots and tokens of requests that were not sent yet, then they are free at once, and those of others are not",
    () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const { forgotten, heal } = yield* makeHealer
        yield* eventually(Effect.isSuccess(meter.ping), Boolean)
        const claims = claimsOf({ concurrent: 4, tpm: 1000 })
        const [lost, kept] = [dead(), dead()]
        yield* meter.reserve(claims, ask(lost, 100))
        // Its answer was being written, so it kept its slot.
        const written = granted(yield* meter.reserve(claims, ask(kept, 100)))
        yield* meter.settle(written.reservation, 10, { keepSlot: true })
        const other = alive()
        yield* meter.reserve(claims, ask(other, 50))
        yield* heal
        assert.deepStrictEqual(yield* meter.holders(claims.account), [other])
        const left = yield* meter.peek(claims)
        assert.strictEqual(left instanceof Missing ? undefined : left.tokens.remaining, 1000 - 10 - 50)
        assert.deepStrictEqual(forgotten, [casualty.id])
        // A command that the dead worker had sent runs late: the second round finds it.
        yield* meter.reserve(claims, ask(dead(), 100))
        yield* heal
        assert.deepStrictEqual(yield* meter.holders(claims.account), [other])
      }).pipe(Effect.scoped),
    60_000
  )

  it.effect("when it is healed, then its row among the replicas is gone", () =>
    Effect.gen(function* () {
      const replicas = yield* Effect.provide(Replicas, layerReplicas)
      const { heal } = yield* makeHealer
      yield* replicas.report({ id: casualty.id, host: "h#2", version: "1", gauges: {} })
      yield* heal
      assert.deepStrictEqual(yield* replicas.list, [])
    }).pipe(Effect.scoped)
  )

  it.effect("when the database is away, then it says that it failed, so that it is asked again", () =>
    Effect.gen(function* () {
      const pg = yield* PgClient.PgClient
      const { heal } = yield* makeHealer
      yield* pg`ALTER TABLE intents RENAME TO intents_away`
      const outcome = yield* Effect.exit(heal)
      yield* pg`ALTER TABLE intents_away RENAME TO intents`
      assert.strictEqual(outcome._tag, "Failure")
      yield* heal
    }).pipe(Effect.scoped)
  )
})
