/** Many requests over two replicas, on keys with every kind of limit: nobody gets more, and nobody less. */
import { Effect } from "effect"
import { settledBooks } from "../../test/support/books.ts"
import { busiestMinute, spentOf, tokensInMinute, unaudited, wronglyRefused } from "../books.ts"
import { type Outcome, sendAll, warm } from "./Load.ts"
import { type Figure, figure } from "./figures.ts"
import { newKey, World } from "./World.ts"

const rpm = 300
const concurrent = 4
const tokensPerMinute = 3000
const budget = 5000
/** The most a request of these runs can cost beyond its hold: its prompt, when less than that was left. */
const prompt = 20

/** How often each status and error type came, with the longest wait for it in ms. */
const kindsOf = (outcomes: ReadonlyArray<Outcome>) => {
  const kinds = new Map<string, { count: number; longest: number }>()
  for (const { status, type, began, ended } of outcomes) {
    const kind = kinds.get(`${status} ${type}`) ?? { count: 0, longest: 0 }
    kinds.set(`${status} ${type}`, {
      count: kind.count + 1,
      longest: Math.max(kind.longest, Math.round(ended - began))
    })
  }
  return [...kinds].map(
    ([kind, { count, longest }]) => [`${kind}, after ${longest} ms at most`, count] as const
  )
}

export const mixed = Effect.fnUntraced(function* (requests: number) {
  const { backend, replicas } = yield* World
  const free = yield* Effect.forEach(
    Array.from({ length: 20 }, (_, i) => i),
    (i) => newKey(`free-${i}`)
  )
  const one = yield* newKey("one")
  const rate = yield* newKey("rate", { rpm })
  const slots = yield* newKey("slots", { concurrent })
  const tokens = yield* newKey("tokens", { tpm: tokensPerMinute })
  const spender = yield* newKey("budget", {}, { day: budget })
  const url = (i: number) => replicas[i % 2 === 0 ? 0 : 1].url
  // A replica verifies a secret once, a few at a time: twenty new keys in one instant would be told to come again.
  for (const { url } of replicas) yield* warm(url, [...free, one, rate, slots, tokens, spender])
  const began = performance.now()
  const outcomes = yield* sendAll(requests, 64, (i) => {
    const at = url(Math.floor(i / 10) + i)
    const call = { model: "short", stream: i % 3 === 0 } as const
    switch (i % 10) {
      case 0:
        return { url: at, call: { ...call, key: rate } }
      case 1:
        return { url: at, call: { ...call, key: slots, model: i % 200 === 1 ? "slow" : "short" } }
      case 2:
        return { url: at, call: { ...call, key: tokens } }
      case 3:
        return { url: at, call: { ...call, key: spender } }
      case 4:
      case 5:
        return { url: at, call: { ...call, key: one } }
      default:
        return { url: at, call: { ...call, key: free[i % free.length] ?? one } }
    }
  })
  const seconds = (performance.now() - began) / 1000
  const of = (name: string) => outcomes.filter(({ key }) => key.name === name)
  const got = (some: ReadonlyArray<Outcome>) => some.filter(({ status }) => status === 200).length
  const unlimited = outcomes.filter(({ key }) => key.name === "one" || key.name.startsWith("free-"))
  const odd = outcomes.filter(({ status, type }) => status !== 200 && (status !== 429 || type === "?"))

  // A refused slot is right when as many others of the key were under way at some moment of it.
  const running = of("slots").filter(({ status }) => status === 200)
  const wrongSlots = of("slots").filter(
    (refused) =>
      refused.type === "concurrency_limit_exceeded" &&
      running.filter((other) => other.began < refused.ended && other.ended > refused.began).length <
        concurrent
  ).length

  const end = yield* settledBooks(15)
  const spent = yield* spentOf(spender.prefix)
  const minute = yield* busiestMinute(rate.prefix)
  const figures: ReadonlyArray<Figure> = [
    figure("requests", outcomes.length),
    figure("requests per second", Math.round(outcomes.length / seconds)),
    figure("answers", got(outcomes)),
    figure("neither answered nor refused by a limit", odd.length, (n) => n === 0),
    ...kindsOf(odd).map(([kind, count]) => figure(`  ${kind}`, count)),
    figure("refused on keys without limits", unlimited.length - got(unlimited), (n) => n === 0),
    figure(`busiest 60 s of the key with rpm ${rpm}`, minute, (n) => n <= rpm),
    figure("its refusals", of("rate").length - got(of("rate"))),
    figure("of them with room in the window", yield* wronglyRefused(rate.prefix, rpm), (n) => n === 0),
    figure(
      `most at once on the key with ${concurrent} slots`,
      backend.most.get("slots") ?? 0,
      (n) => n <= concurrent
    ),
    figure("its refusals", of("slots").length - got(of("slots"))),
    figure("of them with a slot free", wrongSlots, (n) => n === 0),
    figure(
      `tokens in the busiest 60 s of the key with tpm ${tokensPerMinute}`,
      yield* tokensInMinute(tokens.prefix),
      (n) => n <= tokensPerMinute + prompt
    ),
    figure(`tokens of the key with a budget of ${budget}`, spent, (n) => n <= budget + prompt),
    figure(
      "its refusals before the budget was spent",
      spent < budget ? of("budget").length - got(of("budget")) : 0,
      (n) => n === 0
    ),
    figure("reached the backend without an audit row", yield* unaudited(backend.seen), (n) => n === 0),
    figure("audit, tokens", end.audit),
    figure("ledger, tokens", end.ledger, (n) => n === end.audit),
    figure("live counters, tokens", end.counters, (n) => n === end.ledger),
    figure("slots, holds and intents left", end.open, (n) => n === 0)
  ]
  return figures
})
