/** What the prompt log owes: all of what opted-in keys asked and were told, bounded, and nothing of anybody else. */
import { randomUUID, randomUUIDv7 } from "node:crypto"
import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Metrics from "../../src/observability/Metrics.ts"
import { layerPostgres as layerPromptLog, PromptLog } from "../../src/promptlog/PromptLog.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import type { Caller } from "../../src/domain/Caller.ts"
import type { InferenceRequest, JsonObject } from "../../src/domain/Inference.ts"
import { eventually } from "../support/Gateway.ts"
import { callerOf, noon } from "../support/records.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { prepared } from "../support/permits.ts"
import { inWorld } from "../support/testWith.ts"

interface KeptRow {
  readonly prompt: string
  readonly answer: string
  readonly truncated: boolean
  readonly endpoint: string
  /** until it is deleted */
  readonly days: number
}

/** What the tests have to know of the database. */
class Kept extends Context.Service<
  Kept,
  {
    row(requestId: string): Effect.Effect<KeptRow | undefined>
    /** a caller whose key has opted in, with a retention of its own or the default of 12 days */
    optedIn(days?: number): Effect.Effect<Caller>
    optOut(caller: Caller): Effect.Effect<void>
  }
>()("test/Kept") {}

const defaultDays = 12

const asking = (body: JsonObject): InferenceRequest => ({
  kind: "chat",
  model: "m",
  stream: true,
  body,
  options: {},
  maxTokens: undefined,
  promptBytes: 5,
  promptEstimate: 5
})

const arrivalOf = (requestId: string = randomUUIDv7()) => ({
  requestId,
  arrivedAt: noon,
  method: "POST",
  endpoint: "/api/chat",
  clientIp: "127.0.0.1"
})

const frame = (text: string) => ({ createdAt: "2026-11-21T12:00:00Z", text, done: false })

/** One request of `caller` from beginning to end; its id. */
const asked = Effect.fnUntraced(function* (
  caller: Caller,
  prompt: string,
  answer: ReadonlyArray<string>,
  requestId: string = randomUUIDv7()
) {
  const log = yield* PromptLog
  const transcript = log.transcript(caller, arrivalOf(requestId), prepared(asking({ prompt })))
  for (const text of answer) transcript?.add([frame(text)])
  yield* transcript?.keep ?? Effect.void
  return requestId
})

const kept = Effect.fnUntraced(function* (requestId: string) {
  const world = yield* Kept
  return yield* eventually(world.row(requestId), (row) => row !== undefined)
})

const layerKept = Layer.effect(
  Kept,
  Effect.gen(function* () {
    const [sql, registry] = [yield* SqlClient.SqlClient, yield* Registry]
    yield* registry.createTenant({ name: "t" })
    return Kept.of({
      row: (requestId) =>
        Effect.orDie(
          Effect.map(
            sql<KeptRow>`SELECT prompt, answer, truncated, endpoint,
              round(extract(epoch FROM expires_at - now()) / 86400)::integer AS days
              FROM prompt_log WHERE request_id = ${requestId}::text::uuid`,
            ([row]) => (row === undefined ? undefined : { ...row })
          )
        ),
      optedIn: (days) =>
        Effect.gen(function* () {
          const { key } = yield* registry.createKey({ tenant: "t", name: "k", allowDuplicate: true })
          yield* registry.changeKey(key.prefix, {
            promptLog: true,
            ...(days === undefined ? {} : { promptLogDays: days })
          })
          const [row] = yield* sql<{ readonly id: string }>`
            SELECT id::text AS id FROM api_keys WHERE prefix = ${key.prefix}`
          return { ...callerOf(row?.id), keyPrefix: key.prefix, promptLogDays: days ?? defaultDays }
        }).pipe(Effect.orDie),
      optOut: ({ keyPrefix }) => Effect.orDie(registry.changeKey(keyPrefix, { promptLog: false }))
    })
  })
).pipe(Layer.provide(layerRegistry({ defaults: { rpm: 60, tpm: 1000, concurrent: 4 } })))

inWorld(
  Layer.merge(layerPromptLog({ defaultDays }), layerKept).pipe(
    Layer.provideMerge(Layer.merge(TestPostgres, Metrics.layer))
  )
)("the prompt log", (test) => {
  test("when a key has opted in, then prompt and answer are kept for its own time or the default one", function* () {
    const world = yield* Kept
    for (const [days, expected] of [
      [undefined, defaultDays],
      [3, 3]
    ] as const) {
      const id = yield* asked(yield* world.optedIn(days), "one?", ["It is", " one."])
      assert.deepStrictEqual(yield* kept(id), {
        prompt: '{"prompt":"one?"}',
        answer: "It is one.",
        truncated: false,
        endpoint: "/api/chat",
        days: expected
      })
    }
  })

  test("when a key opts out while its request runs, then nothing of the request is kept", function* () {
    const [log, world] = [yield* PromptLog, yield* Kept]
    const [leaving, staying] = [yield* world.optedIn(), yield* world.optedIn()]
    const id = randomUUIDv7()
    const transcript = log.transcript(leaving, arrivalOf(id), prepared(asking({ prompt: "one?" })))
    transcript?.add([frame("one")])
    yield* world.optOut(leaving)
    yield* transcript?.keep ?? Effect.void
    // What comes later is written later.
    yield* kept(yield* asked(staying, "two?", ["two"]))
    assert.isUndefined(yield* world.row(id))
  })

  test("when a request is written twice, then the first one is kept", function* () {
    const world = yield* Kept
    const caller = yield* world.optedIn()
    const id = yield* asked(caller, "one?", ["first"])
    yield* kept(id)
    yield* asked(caller, "one?", ["second"], id)
    yield* kept(yield* asked(caller, "two?", ["two"]))
    assert.strictEqual((yield* world.row(id))?.answer, "first")
  })

  test("when a text is longer than 64 KiB, then it is cut and marked, and any text is accepted", function* () {
    const caller = yield* (yield* Kept).optedIn()
    const long = yield* kept(yield* asked(caller, "ö".repeat(40_000), ["€".repeat(1000), "x"]))
    assert.isTrue(long?.truncated)
    assert.isAtMost(Buffer.byteLength(long?.prompt ?? ""), 65_536)
    assert.notInclude(long?.prompt, "\ufffd")
    const odd = yield* kept(yield* asked(caller, "\u0000\ud800", ["\u0000", "\udc00", "'\\\"%;--"]))
    assert.include(odd?.answer, "'\\\"%;--")
  })

  test("when the caller is unknown, then nothing is stored and nothing fails", function* () {
    const world = yield* Kept
    const id = yield* asked({ ...callerOf(randomUUID()), promptLogDays: 3 }, "one?", ["one"])
    yield* kept(yield* asked(yield* world.optedIn(), "two?", ["two"]))
    assert.isUndefined(yield* world.row(id))
  })
})
