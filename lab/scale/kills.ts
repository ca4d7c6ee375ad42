/** `kill -9` of a replica in the middle of its traffic, again and again: what is left behind, and for how long? */
import { Effect, Fiber } from "effect"
import { books, settledBooks } from "../../test/support/books.ts"
import { unaudited } from "../books.ts"
import { type Figure, figure } from "./figures.ts"
import { type Outcome, send } from "./Load.ts"
import { leaseS, newKey, World } from "./World.ts"

const clients = 24
const slots = 12

/** The reconciler looks every five seconds, and needs a moment. */
const patienceS = leaseS + 8

export const kills = Effect.fnUntraced(function* (times: number) {
  const { backend, replicas } = yield* World
  const keys = yield* Effect.forEach(
    Array.from({ length: 4 }, (_, i) => i),
    (i) => newKey(`killed-${i}`, { concurrent: slots })
  )
  const outcomes: Array<Outcome> = []
  const traffic = { over: false }
  const client = (i: number) =>
    Effect.gen(function* () {
      for (let n = i; !traffic.over; n++) {
        const key = keys[n % keys.length]
        if (key === undefined) return
        const model = n % 3 === 0 ? "short" : "slow"
        const { url } = replicas[n % 2 === 0 ? 0 : 1]
        const outcome = yield* send(url, { key, model, stream: n % 4 !== 0 })
        outcomes.push(outcome)
        // A client whose replica is down waits a moment, as clients do.
        if (outcome.status === 0) yield* Effect.sleep("100 millis")
      }
    })
  const running = yield* Effect.forkChild(
    Effect.forEach(
      Array.from({ length: clients }, (_, i) => i),
      client,
      { concurrency: "unbounded", discard: true }
    ),
    { startImmediately: true }
  )
  let cut = 0
  for (let n = 0; n < times; n++) {
    yield* Effect.sleep(300 + ((n * 137) % 700))
    const replica = replicas[n % 2 === 0 ? 0 : 1]
    const before = outcomes.filter(({ status }) => status === 0).length
    yield* replica.kill
    yield* Effect.sleep("50 millis")
    cut += outcomes.filter(({ status }) => status === 0).length - before
    yield* replica.start
  }
  // The last time nobody is left to clean up: slots come back by themselves, intents when somebody looks.
  yield* Effect.sleep("1 second")
  const last = performance.now()
  yield* Effect.all([replicas[0].kill, replicas[1].kill], { concurrency: 2 })
  traffic.over = true
  yield* Fiber.join(running)
  const left = yield* books
  while ((yield* books).leases > 0 && performance.now() - last < 60_000) yield* Effect.sleep("50 millis")
  const slotsBack = (performance.now() - last) / 1000
  yield* Effect.all([replicas[0].start, replicas[1].start], { concurrency: 2 })
  const end = yield* settledBooks(patienceS)
  const figures: ReadonlyArray<Figure> = [
    figure("kills of one replica", times),
    figure("requests", outcomes.length),
    figure("requests cut by a kill", cut),
    figure("whole answers", outcomes.filter(({ status }) => status === 200).length),
    figure("both killed: slots and intents they left", `${left.leases}, ${left.open - left.leases}`),
    figure("both killed: seconds until all slots were back", slotsBack, (s) => s <= leaseS + 1),
    figure("seconds from the restart until the books were closed", end.seconds),
    figure("slots, holds and intents left", end.open, (n) => n === 0),
    figure("reached the backend", backend.seen.size),
    figure("of them without an audit row", yield* unaudited(backend.seen), (n) => n === 0),
    figure("audit, tokens", end.audit),
    figure("ledger, tokens", end.ledger, (n) => n === end.audit),
    figure("live counters, tokens", end.counters, (n) => n === end.ledger)
  ]
  return figures
})
