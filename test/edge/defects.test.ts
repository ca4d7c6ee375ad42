/**
 * A defect in whichever part of the gateway, at whichever step, which no error type has foreseen: the client is told as much as
 * an `internal_error`, the request is audited and charged once, its slot and hold are free, and the next one is served.
 */
import { assert } from "@effect/vitest"
import { Context, Effect, Layer, Stream } from "effect"
import { HttpServer } from "effect/http"
import { Audit } from "../../src/audit/Audit.ts"
import { Backend } from "../../src/backend/Backend.ts"
import { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { Budget } from "../../src/gates/limits/Budget.ts"
import { Limiter } from "../../src/gates/limits/Limiter.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { Discovery } from "../../src/gates/models/Discovery.ts"
import { layerLogging } from "../../src/observability/logging.ts"
import { Metrics } from "../../src/observability/Metrics.ts"
import { layerInMemory } from "../support/inMemory.ts"
import { modelNamed } from "../support/permits.ts"
import { intercept } from "../support/intercept.ts"
import { AuditMemory } from "../support/twins/Audit.ts"
import { layerMemory as layerBackend, replyWith } from "../support/twins/Backend.ts"
import { makeMemory as makeKeys, memoryKey } from "../support/twins/KeyStore.ts"
import { hello } from "../support/Gateway.ts"
import { eventually } from "../support/wait.ts"
import { inWorld } from "../support/testWith.ts"
import { type Asked, ask } from "../support/posting.ts"

/** What breaks, once, the next time it is used, by name: `Meter.settle`. */
const armed: { part: string | undefined } = { part: undefined }

const breakable = <S extends object>(name: string, service: S, atOnce: ReadonlyArray<keyof S> = []): S =>
  intercept(
    service,
    (part) =>
      Effect.suspend(() => {
        if (armed.part !== `${name}.${part}`) return Effect.void
        armed.part = undefined
        return Effect.die(new Error(`a defect in ${name}.${part}`))
      }),
    atOnce
  )

const layerBreakable = Layer.effectContext(
  Effect.gen(function* () {
    return Context.make(KeyStore, breakable("KeyStore", yield* KeyStore)).pipe(
      Context.add(Discovery, breakable("Discovery", yield* Discovery, ["resolve"])),
      Context.add(Budget, breakable("Budget", yield* Budget)),
      Context.add(Meter, breakable("Meter", yield* Meter)),
      Context.add(Audit, breakable("Audit", yield* Audit, ["close"])),
      Context.add(Backend, breakable("Backend", yield* Backend)),
      Context.add(Metrics, breakable("Metrics", yield* Metrics, ["firstFrame", "observe"]))
    )
  })
)

/** On the parts that can break, so that they break inside the Limiter too. */
const layerBreakableLimiter = Layer.effect(
  Limiter,
  Effect.map(Limiter, (limiter) => breakable("Limiter", limiter))
).pipe(Layer.provide(Layer.fresh(Limiter.layer)))

const keys = makeKeys()
/** What the model says next; without it, two words, which with their prompt are 10 tokens. */
const script: Array<Stream.Stream<Stream.Success<ReturnType<typeof replyWith>>>> = []

const gateway = layerInMemory({
  keyStore: keys.layer,
  backend: layerBackend({
    models: Effect.succeed([modelNamed("m:latest")]),
    reply: ({ numPredict }) =>
      Effect.sync(() => script.shift() ?? replyWith(["Hello", " world"], numPredict, 8))
  }),
  over: Layer.provideMerge(layerBreakableLimiter, layerBreakable)
}).pipe(Layer.provide(layerLogging({ logLevel: "fatal", production: false })))

interface Step {
  readonly part: string
  readonly status: number
  /** tokens charged: a backend that was called is paid for what was seen of its answer */
  readonly tokens: number
  /** what the audit row says of it, where that is not what the client was told */
  readonly audited?: number
  readonly stream?: boolean
  /** whether the key is new: its totals are in nobody's memory yet */
  readonly cold?: boolean
}

const estimate = 10
/** Output tokens after which a stream asks for more than the 256 it holds at first. */
const seen = 193

const steps: ReadonlyArray<Step> = [
  { part: "KeyStore.verify", status: 500, tokens: 0 },
  { part: "Discovery.resolve", status: 500, tokens: 0 },
  { part: "Limiter.reserve", status: 500, tokens: 0 },
  { part: "Meter.reserve", status: 500, tokens: 0 },
  { part: "Audit.open", status: 500, tokens: 0 },
  { part: "Budget.restore", status: 500, tokens: 0, cold: true },
  { part: "Backend.forward", status: 500, tokens: 0 },
  { part: "Metrics.firstFrame", status: 500, tokens: estimate },
  { part: "Metrics.observe", status: 200, tokens: 10 },
  { part: "Meter.settle", status: 200, tokens: 10 },
  { part: "Audit.close", status: 500, tokens: 10 },
  { part: "Meter.renew", status: 200, audited: 500, tokens: estimate + seen, stream: true }
]

const call = (path: string, asked: Asked = {}) =>
  Effect.flatMap(HttpServer.HttpServer, ({ address }) =>
    ask(new URL(path, HttpServer.formatAddress(address)), asked)
  )

inWorld(gateway)("a defect", (test) => {
  for (const { part, status, tokens, audited = status, cold = false, stream = false } of steps) {
    test(`when it is in ${part}, then it is a 500 in the error shape`, function* () {
      const [{ tables }, meter] = [yield* AuditMemory, yield* Meter]
      const { audit: rows, intents } = tables
      const newKey = () => {
        const key = memoryKey({ budgets: { total: 100_000 } })
        keys.add(key)
        return key
      }
      const key = newKey()
      const chat = (id: string, { secret } = key) =>
        call("/api/chat", { secret, body: hello({ stream }), headers: { "x-request-id": id } })
      assert.strictEqual((yield* chat("first", cold ? newKey() : key)).status, 200)
      if (stream) {
        // More than 256 at once would be an answer that was held back.
        const words = replyWith(
          Array.from({ length: 250 }, () => "x"),
          250
        )
        // The first answer long enough to be looked after makes the store remember that it was there: not the defect's turn.
        script.push(words, Stream.concat(Stream.take(words, seen), Stream.never))
        assert.strictEqual((yield* chat("looked-after")).status, 200)
      }
      const id = `broken-${part}`
      armed.part = part
      const answer = yield* chat(id)
      assert.isUndefined(armed.part)
      assert.strictEqual(answer.status, status, answer.text)
      const written = Effect.sync(() => [...rows.values()].filter((row) => row.client_request_id === id))
      const found = yield* eventually(written, ({ length }) => length > 0)
      assert.deepStrictEqual(
        found.map((row) => [row.status, row.tokens_in + row.tokens_out]),
        [[audited, tokens]]
      )
      assert.strictEqual((yield* chat("next")).status, 200)
      // Nothing is open, and the counters have what the log has.
      const { caller } = key
      const survey = meter.snapshot({ group: caller.tenantId, key: caller.accountId }, Date.now())
      const own = [...rows.values()].filter((row) => row.key_id === caller.keyId)
      const total = own.reduce((sum, row) => sum + row.tokens_in + row.tokens_out, 0)
      const settled = yield* eventually(survey, ({ open, totals }) => open === 0 && totals.total === total)
      assert.deepStrictEqual([settled.open, settled.lapsed, settled.totals.total], [0, [], total])
      assert.strictEqual(intents.size, 0)
    })
  }

  for (const [part, path] of [
    ["Metrics.exposition", "/metrics"],
    ["KeyStore.ping", "/readyz"]
  ] as const) {
    test(`when it is in ${part}, then it is a 500 in the error shape, though ${path} has no audit row`, function* () {
      armed.part = part
      // Readiness may be a second old: the metrics ask for it as well.
      const answer = yield* eventually(call(path), () => armed.part === undefined)
      assert.strictEqual(answer.status, 500)
      assert.deepStrictEqual(JSON.parse(answer.text), {
        error: { message: "internal error", type: "internal_error", code: 500 },
        request_id: answer.headers.get("x-request-id")
      })
      assert.strictEqual((yield* eventually(call(path), ({ status }) => status === 200)).status, 200)
    })
  }
})
