/**
 * Tells the primary once which accounts this worker serves, before the first request of each has a slot. When this worker
 * dies, the others look through these accounts for what it held.
 */
import { Effect, Layer } from "effect"
import type { Account } from "../../domain/Reservation.ts"
import { Meter } from "../../gates/meter/Meter.ts"
import { toPrimary } from "../protocol.ts"
import { WorkerLink } from "./WorkerLink.ts"

/** Accounts that are remembered as told. When there are more, all are told again. */
export const maxTold = 10_000

/** Around the `Meter` of a worker. */
export const layerToldAccounts = <E, R>(
  layerMeter: Layer.Layer<Meter, E, R>
): Layer.Layer<Meter, E, R | WorkerLink> =>
  Layer.effect(
    Meter,
    Effect.gen(function* () {
      const [{ channel }, meter] = [yield* WorkerLink, yield* Meter]
      const told = new Set<string>()
      const tell = ({ group, key }: Account): void => {
        if (told.has(key)) return
        if (told.size >= maxTold) told.clear()
        told.add(key)
        channel.tell(toPrimary.serves, { group, key })
      }
      return Meter.of({
        ...meter,
        reserve: (claims, ask) => {
          tell(claims.account)
          return meter.reserve(claims, ask)
        }
      })
    })
  ).pipe(Layer.provide(layerMeter))
