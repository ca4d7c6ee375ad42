/** The whole gateway before a real model server, with databases of its own. */
import { Effect, Layer, Result } from "effect"
import { guards, GuardsInForce } from "../src/backend/ollama/guards/guards.ts"
import { call, eventually, layerGatewayBefore, newKey } from "../test/support/Gateway.ts"
import { layerTestPostgres } from "../test/support/TestPostgres.ts"
import { layerTestRedis } from "../test/support/TestRedis.ts"
import { layerOwnOllama, layerRealOllama, OwnOllama, RealOllama, type Settings } from "./RealOllama.ts"

const count = (text: string, what: string): number => text.split(what).length - 1

/** Ready when discovery has listed all models and asked what each one can do. Rules about models hold from then on. */
const layerBefore = (url: URL, env: Settings) => {
  const discovered = Effect.gen(function* () {
    const { secret } = yield* newKey()
    yield* eventually(
      call("/api/tags", { secret }),
      ({ text }) =>
        count(text, '"digest":') > 0 && count(text, '"digest":') === count(text, '"capabilities":'),
      30_000
    )
  })
  return Layer.effectDiscard(discovered).pipe(Layer.provideMerge(layerGatewayBefore(url, env)))
}

/** `GUARDS=off`, or the name of one: what the server does without it. */
const off = process.env["GUARDS"]

const layerGuards = Layer.succeed(GuardsInForce, {
  schema:
    off === "off" || off === "schema" ? (schema) => Result.succeed({ schema, relaxed: [] }) : guards.schema,
  problem: off === "off" || off === "problem" ? () => undefined : guards.problem
})

/** The gateway before the real server. */
export const layerRealGateway = (env: Settings = {}) =>
  Layer.unwrap(Effect.map(RealOllama, ({ url }) => layerBefore(url, env))).pipe(
    Layer.provide(layerGuards),
    Layer.provideMerge(layerRealOllama),
    Layer.provideMerge(layerTestPostgres()),
    Layer.provideMerge(Layer.fresh(layerTestRedis))
  )

/** The gateway before a server that the test may kill. */
export const layerOwnGateway = (server: Settings = {}, env: Settings = {}) =>
  Layer.unwrap(Effect.map(OwnOllama, ({ url }) => layerBefore(url, env))).pipe(
    Layer.provide(layerGuards),
    Layer.provideMerge(layerOwnOllama(server)),
    Layer.provideMerge(layerTestPostgres()),
    Layer.provideMerge(Layer.fresh(layerTestRedis))
  )
