/** The whole gateway before a real model server, with databases of its own. */
import { Effect, Layer } from "effect"
import { layerGatewayBefore } from "../support/Gateway.ts"
import { layerTestPostgres } from "../support/TestPostgres.ts"
import { layerTestRedis } from "../support/TestRedis.ts"
import { layerOwnOllama, layerRealOllama, OwnOllama, RealOllama, type Settings } from "./RealOllama.ts"

/** The gateway before the real server. */
export const layerRealGateway = (env: Settings = {}) =>
  Layer.unwrap(Effect.map(RealOllama, ({ url }) => layerGatewayBefore(url, env))).pipe(
    Layer.provideMerge(layerRealOllama),
    Layer.provideMerge(layerTestPostgres()),
    Layer.provideMerge(Layer.fresh(layerTestRedis))
  )

/** The gateway before a server that the test may kill. */
export const layerOwnGateway = (server: Settings = {}, env: Settings = {}) =>
  Layer.unwrap(Effect.map(OwnOllama, ({ url }) => layerGatewayBefore(url, env))).pipe(
    Layer.provideMerge(layerOwnOllama(server)),
    Layer.provideMerge(layerTestPostgres()),
    Layer.provideMerge(Layer.fresh(layerTestRedis))
  )
