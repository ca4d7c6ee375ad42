/** `doctor --agents`: what it says of a gateway that admits an agent, and of each wall. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"
import { HttpServer } from "effect/http"
import { layerMemory as layerBackend, replyWith } from "../support/twins/Backend.ts"
import { BadRequest } from "../../src/domain/Errors.ts"
import { type InMemoryOptions, layerInMemory, memoryKey } from "../support/inMemory.ts"
import { layerMemory as layerDiscovery } from "../support/twins/Discovery.ts"
import { modelNamed } from "../support/permits.ts"
import { ownEnvironment } from "../support/ownEnvironment.ts"
import { freePort } from "../support/servers/processes.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { testWith } from "../support/testWith.ts"

const limits = { rpm: 1000, tpm: 1_000_000, concurrent: 8 }
const Checks = Schema.fromJsonString(
  Schema.Struct({
    checks: Schema.Array(
      Schema.Struct({
        name: Schema.String,
        state: Schema.String,
        detail: Schema.String,
        mend: Schema.optionalKey(Schema.String)
      })
    )
  })
)

/** The checks about agents, as `name state`, and the whole text. The log of the gateway is printed before them. */
const asked = (secret: string | undefined, gateway: InMemoryOptions, ...more: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const { address } = yield* HttpServer.HttpServer
    if (secret !== undefined) yield* ownEnvironment({ TOLLGATE_KEY: secret })
    const where = more.includes("--url") ? [] : ["--url", HttpServer.formatAddress(address)]
    const ran = yield* tollgateHere("doctor", "--agents", "--json", ...where, ...more)
    const { checks } = yield* Schema.decodeEffect(Checks)(
      ran.stdout.slice(ran.stdout.indexOf('{\n  "checks"'))
    )
    const own = checks.filter(({ name }) => name.startsWith("agents"))
    return {
      code: ran.code,
      states: own.map(({ name, state }) => `${name.replace("agents: ", "")} ${state}`),
      text: own.map(({ detail, mend = "" }) => `${detail} -> ${mend}`).join("\n")
    }
  }).pipe(Effect.scoped, Effect.provide(Layer.mergeAll(Admin, layerInMemory(gateway))))

const window = (tokens: number) =>
  layerDiscovery([modelNamed("m:latest")], {}, { defaultTokens: tokens, refuses: false })

const test = testWith(it.effect)

test("when a gateway admits an agent, then each check is well, and the request was as an agent's", function* () {
  const key = memoryKey({ limits })
  const seen: Array<number> = []
  const backend = layerBackend({
    models: Effect.succeed([]),
    reply: ({ numPredict, request }) =>
      Effect.sync(() => {
        const { tools } = JSON.parse(request.text.json)
        seen.push(request.promptBytes, Array.isArray(tools) ? tools.length : 0, numPredict)
        return replyWith(["hi"], numPredict)
      })
  })
  const { code, states, text } = yield* asked(key.secret, {
    keys: [key],
    backend,
    discovery: window(65_536),
    server: { maxRequestBodyBytes: 4_194_304, extraSurfaces: new Set(["responses", "messages"]) }
  })
  assert.deepStrictEqual(states, ["first turn ok", "window ok", "session ok", "responses ok", "messages ok"])
  assert.strictEqual(code, 0, text)
  assert.isAtLeast(seen[0] ?? 0, 60_000)
  assert.deepStrictEqual(seen.slice(1), [15, 32_000])
})

test("when there are walls, then each is named with its setting, also those behind the first", function* () {
  const key = memoryKey({ limits: { ...limits, tpm: 200_000 } })
  const backend = layerBackend({
    models: Effect.succeed([]),
    reply: ({ numPredict, request }) =>
      JSON.parse(request.text.json).tools === undefined
        ? Effect.succeed(replyWith(["hi"], numPredict))
        : new BadRequest({ detail: "the model does not support a feature that this request uses" })
  })
  const { code, states, text } = yield* asked(key.secret, {
    keys: [key],
    backend,
    discovery: window(8192),
    server: { maxRequestBodyBytes: 32_768, numPredictCap: 4096 }
  })
  assert.deepStrictEqual(states, [
    "body failed",
    "output bound failed",
    "tools failed",
    "tokens a minute warning",
    "first turn ok",
    "window failed",
    "session warning",
    "responses warning",
    "messages warning"
  ])
  assert.strictEqual(code, 1)
  for (const setting of [
    "MAX_REQUEST_BODY_BYTES",
    "NUM_PREDICT_CAP",
    "OUTPUT_ABOVE_CAP=lower",
    "capabilities have tools",
    "--tpm",
    "BACKEND_CONTEXT_LENGTH",
    "EXTRA_SURFACES=responses",
    "EXTRA_SURFACES=messages"
  ])
    assert.include(text, setting)
  assert.notInclude(text, key.secret)
})

test("when there is no key, no such model or no gateway, then that is the check that fails", function* () {
  const key = memoryKey({ limits })
  const { code, text } = yield* asked(undefined, { keys: [key] })
  assert.strictEqual(code, 1)
  assert.include(text, "TOLLGATE_KEY")
  assert.include((yield* asked(key.secret, { keys: [key] }, "--model", "other")).text, "does not list other")
  const nowhere = `http://127.0.0.1:${yield* freePort}`
  const nobody = yield* asked(key.secret, { keys: [key] }, "--url", nowhere)
  assert.match(nobody.text, /does not answer as a gateway: connect ECONNREFUSED 127[^]* -> check --url/)
  assert.strictEqual(nobody.code, 1)
  const { secret: unknown } = memoryKey({ limits })
  assert.include((yield* asked(unknown, { keys: [key] })).text, "the gateway refuses the key -> ")
})
