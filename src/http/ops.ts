/** Health and metrics: no key, no audit row, no limits (contract §3). */
import type { IncomingMessage } from "node:http"
import { BlockList, isIP } from "node:net"
import { Context, Duration, Effect, Layer } from "effect"
import { HttpServerResponse } from "effect/http"
import type { Metrics } from "../audit/Metrics.ts"
import { Backend } from "../backend/Backend.ts"
import { ShuttingDown, Unavailable } from "../domain/Errors.ts"
import { KeyStore } from "../gates/KeyStore/KeyStore.ts"
import { Meter } from "../gates/Meter/Meter.ts"
import { answerWithin } from "../infra/Deadline.ts"
import { Drain } from "../infra/Drain.ts"
import type { Exchange } from "../pipeline/Exchange.ts"
import { plainAddress } from "./arrival.ts"
import { headersOf, respondJson } from "./respond.ts"

const probeTimeout = Duration.seconds(1)

/**
 * Whether database, cache store and backend all answer, and this process is not on its way out. One probe a second
 * at most, however many ask: readiness must not become an amplifier.
 */
export class Readiness extends Context.Service<
  Readiness,
  { readonly check: Effect.Effect<void, ShuttingDown | Unavailable> }
>()("tollgate/http/Readiness") {
  static readonly layer = Layer.effect(
    Readiness,
    Effect.gen(function* () {
      const [keys, meter, backend, drain] = [yield* KeyStore, yield* Meter, yield* Backend, yield* Drain]
      const bounded = <E>(probe: Effect.Effect<void, E>) =>
        probe.pipe(
          answerWithin(probeTimeout),
          Effect.mapError((cause) => new Unavailable({ gate: "KeyStore", cause }))
        )
      const probe = yield* Effect.all([bounded(keys.ping), bounded(meter.ping), bounded(backend.ping)], {
        concurrency: "unbounded",
        discard: true
      }).pipe(Effect.result, Effect.cachedWithTTL("1 second"))
      const stopping = Effect.suspend(() =>
        drain.draining() ? Effect.fail(new ShuttingDown()) : Effect.void
      )
      return { check: Effect.andThen(stopping, Effect.flatMap(probe, Effect.fromResult)) }
    })
  )
}

const loopback = new BlockList()
loopback.addSubnet("127.0.0.0", 8, "ipv4")
loopback.addAddress("::1", "ipv6")

const forwarding = /^(?:forwarded|x-real-ip|x-forwarded-.*)$/

/** Only the socket's peer counts, and a request that came through a proxy is not from here (contract §3). */
export const isLocal = (incoming: IncomingMessage): boolean => {
  const peer = plainAddress(incoming.socket.remoteAddress ?? "")
  const family = isIP(peer)
  return (
    family !== 0 &&
    loopback.check(peer, family === 6 ? "ipv6" : "ipv4") &&
    !Object.keys(incoming.headers).some((name) => forwarding.test(name))
  )
}

export const healthz = (exchange: Exchange) => Effect.succeed(respondJson(exchange, { status: "ok" }))

export const readyz = (readiness: Readiness["Service"], exchange: Exchange) =>
  Effect.map(readiness.check, () => respondJson(exchange, { status: "ok" }))

export const metrics = (registry: Metrics["Service"], exchange: Exchange) =>
  Effect.map(registry.exposition, (text) =>
    HttpServerResponse.text(text, {
      contentType: "text/plain; version=0.0.4; charset=utf-8",
      headers: headersOf(exchange)
    })
  )
