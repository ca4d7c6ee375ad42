/**
 * Limits the rate of refusals of unknown callers. Beyond the rate each refusal waits, and so does its connection. A
 * flood of bad keys or paths then slows itself down, and not the paying clients. Below the rate nothing waits.
 *
 * *Details* Addresses take turns, so that a flood from one address delays a refusal of another by at most one turn. A
 * client that leaves gives its place back; one that left before its request was read has no address and takes no
 * turn. After `maxMs` a refusal is answered without a turn.
 *
 * A few refusals of each address have audit rows of their own, and ten times as many of all addresses together. All
 * others, and refusals that waited that long, share one row a second (`audit/Tally.ts`).
 */
import { Context, Deferred, Effect, Exit, Layer, Option } from "effect"
import { makeLruCache } from "../../gates/keys/LruCache.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import { addressGroup } from "./addresses.ts"

export interface TarpitOptions {
  /** refusals a second; default 200 */
  readonly perSecond?: number
  /** how many are answered at once after a quiet second; default 100 */
  readonly burst?: number
  /** no refusal waits longer than this, in ms; default 3000 */
  readonly maxMs?: number
  /** rows of their own for refusals of one address */
  readonly rowsPerMinute: number
}

/** Rows of all addresses together, as a multiple of those of one. */
const allAddresses = 10
/** Addresses whose rows are counted, those that were refused last. */
const maxAddresses = 10_000

/** Stands for the address of a connection that was already reset. */
const gone = ""

type Waiting = Deferred.Deferred<void>

export class Tarpit extends Context.Service<
  Tarpit,
  {
    /** Waits for the turn of one refusal to `address`. Returns whether the refusal has an audit row of its own. */
    turn(address: string): Effect.Effect<boolean>
    /** The same without waiting. */
    turnNow(address: string): Effect.Effect<boolean>
  }
>()("tollgate/http/server/Tarpit") {
  static readonly layer = (options: TarpitOptions): Layer.Layer<Tarpit> =>
    Layer.effect(
      Tarpit,
      Effect.gen(function* () {
        const nowMs = yield* makeMonotonicMs
        const scope = yield* Effect.scope
        const { burst = 100, maxMs = 3000, perSecond = 200, rowsPerMinute } = options
        const rows = makeRowAllowance(rowsPerMinute, nowMs)
        /** waiting refusals by address; the address whose turn is next comes first */
        const lines = new Map<string, Set<Waiting>>()
        let turns = burst
        let countedAt = nowMs()
        let serving = false

        const takeTurn = (): boolean => {
          const now = nowMs()
          turns = Math.min(burst, turns + ((now - countedAt) * perSecond) / 1000)
          countedAt = now
          if (turns < 1) return false
          turns -= 1
          return true
        }

        const leave = (group: string, waiting: Waiting): void => {
          const line = lines.get(group)
          line?.delete(waiting)
          if (line?.size === 0) lines.delete(group)
        }

        /** Lets the oldest refusal of the next address go. */
        const serveNext = (): void => {
          for (const [group, line] of lines) {
            for (const waiting of line) {
              leave(group, waiting)
              if (lines.delete(group)) lines.set(group, line)
              Deferred.doneUnsafe(waiting, Exit.void)
              return
            }
          }
        }

        const serve = Effect.gen(function* () {
          while (lines.size > 0) {
            if (takeTurn()) serveNext()
            else yield* Effect.sleep(Math.ceil(((1 - turns) * 1000) / perSecond))
          }
          serving = false
        }).pipe(
          // After a defect the next refusal starts a new loop.
          Effect.onError(() => Effect.sync(() => void (serving = false)))
        )

        const wait = Effect.fnUntraced(function* (group: string) {
          const waiting: Waiting = Deferred.makeUnsafe()
          const line = lines.get(group) ?? new Set()
          lines.set(group, line.add(waiting))
          if (!serving) {
            serving = true
            yield* Effect.forkIn(serve, scope)
          }
          const turn = yield* Deferred.await(waiting).pipe(
            Effect.timeoutOption(maxMs),
            Effect.interruptible,
            Effect.ensuring(Effect.sync(() => leave(group, waiting)))
          )
          return Option.isSome(turn)
        })

        return Tarpit.of({
          turn: (address) =>
            Effect.suspend(() => {
              if (address === gone) return Effect.succeed(false)
              const group = addressGroup(address)
              const turn = lines.size === 0 && takeTurn() ? Effect.succeed(true) : wait(group)
              return Effect.map(turn, (came) => came && rows.take(group))
            }),
          turnNow: (address) =>
            Effect.sync(
              () => address !== gone && lines.size === 0 && takeTurn() && rows.take(addressGroup(address))
            )
        })
      })
    )
}

interface Rows {
  left: number
  countedAt: number
}

/** Which refusals have rows of their own. */
const makeRowAllowance = (perMinute: number, nowMs: () => number) => {
  const byAddress = makeLruCache<Rows>(maxAddresses)
  const all: Rows = { left: allAddresses * perMinute, countedAt: nowMs() }

  const filled = (rows: Rows, perMinute: number, now: number): Rows => {
    rows.left = Math.min(perMinute, rows.left + ((now - rows.countedAt) * perMinute) / 60_000)
    rows.countedAt = now
    return rows
  }

  return {
    /** Takes a row for this address. Returns whether there was one. */
    take: (group: string): boolean => {
      const now = nowMs()
      const own = byAddress.get(group) ?? { left: perMinute, countedAt: now }
      byAddress.set(group, own)
      if (filled(own, perMinute, now).left < 1) return false
      if (filled(all, allAddresses * perMinute, now).left < 1) return false
      own.left -= 1
      all.left -= 1
      return true
    }
  }
}
