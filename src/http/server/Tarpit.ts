/**
 * Limits the rate of refusals of unknown callers. Beyond the rate each refusal waits, and so does its connection. A
 * flood of bad keys or paths then slows itself down, and not the paying clients. Below the rate nothing waits.
 *
 * Addresses take turns, so that a flood from one address delays a refusal of another by at most one turn. A few refusals of each
 * address have audit rows of their own, and ten times as many of all addresses together. All others share one row a second
 * (`audit/Tally.ts`).
 */
import { Context, Effect, Layer, Option, PartitionedSemaphore } from "effect"
import { makeMonotonicMs } from "../../infra/time.ts"
import { makeFairBuckets, type Rate } from "../../infra/TokenBucket.ts"
import { addressGroup } from "./addresses.ts"

export interface TarpitOptions extends Rate {
  /** rows of their own for refusals of one address */
  readonly rowsPerMinute: number
}

/** No refusal waits longer than this. It is then answered without a turn, and has no row of its own. */
const maxMs = 3000
/** Rows of all addresses together, as a multiple of those of one. */
const allAddresses = 10
/** Addresses whose rows are counted, those that were refused last. */
const maxAddresses = 10_000
/** How often there are new turns, at most. */
const leastTickMs = 50

/** Stands for the address of a connection that was already reset. */
const gone = ""

const make = Effect.fnUntraced(function* ({ burst, perSecond, rowsPerMinute }: TarpitOptions) {
  const nowMs = yield* makeMonotonicMs
  const rowRate = { perSecond: rowsPerMinute / 60, burst: rowsPerMinute }
  const rowsOf = makeFairBuckets(rowRate, allAddresses, maxAddresses, nowMs)

  // A turn comes back with time, not when its refusal is over.
  const turns = yield* PartitionedSemaphore.make<string>({ permits: burst })
  const tickMs = Math.max(leastTickMs, 1000 / perSecond)
  const tick = Effect.andThen(Effect.sleep(tickMs), turns.release((perSecond * tickMs) / 1000))
  yield* Effect.forkScoped(Effect.forever(tick))

  const takeNow = Effect.fnUntraced(function* (group: string) {
    if ((yield* turns.available) < 1) return false
    yield* turns.take(group, 1)
    return true
  })

  const take = Effect.fnUntraced(function* (group: string) {
    if (yield* takeNow(group)) return true
    return Option.isSome(yield* Effect.interruptible(Effect.timeoutOption(turns.take(group, 1), maxMs)))
  })

  /** The rows of all addresses together are one group. */
  const takeRow = (address: string): boolean => {
    const buckets = rowsOf("", address)
    if (buckets.some(({ units }) => units < 1)) return false
    for (const bucket of buckets) bucket.take()
    return true
  }

  const withRow = (taken: typeof take) =>
    Effect.fnUntraced(function* (address: string) {
      if (address === gone) return false
      const group = addressGroup(address)
      return (yield* taken(group)) && takeRow(group)
    })

  return {
    /** Waits for the turn of one refusal to an address. Returns whether the refusal has an audit row of its own. */
    turn: withRow(take),
    /** The same without waiting. */
    turnNow: withRow(takeNow)
  }
})

export class Tarpit extends Context.Service<Tarpit>()("tollgate/http/server/Tarpit", { make }) {
  static readonly layer = (options: TarpitOptions): Layer.Layer<Tarpit> => Layer.effect(Tarpit, make(options))
}
