/**
 * The attackers of a soak: one after the other at either replica, while honest clients go on and things go bad. They are
 * those of `npm run attacks`, one of each point and with less at a time, because everybody shares two cores here. Two minutes have
 * seen them all.
 */
import { Effect, Fiber } from "effect"
import type { EffectiveLimits } from "../../src/domain/Limits.ts"
import { completed, type Plan, startAttack } from "../attacks/processes.ts"
import { figure } from "../scale/figures.ts"
import { spentOf } from "../books.ts"
import { type Key, newKey } from "../scale/World.ts"
import { Ground } from "./Ground.ts"

interface Attacker {
  readonly name: string
  readonly plan: Plan
  /** none: the attacker has no key */
  readonly limits?: Partial<EffectiveLimits>
  /** what its key may spend a day */
  readonly budget?: number
  /** what it may spend beyond that: its prompts */
  readonly prompts?: number
}

const user = { role: "user", content: "go" }
const chat = (model: string, more: object = {}) => ({
  model,
  body: JSON.stringify({ model, messages: [user], ...more })
})
const tools = { tools: [{ type: "function", function: { name: "f" } }] }
const words = "many words that cost a token each, and so on; ".repeat(900)
const hidden = {
  messages: [
    user,
    { role: "assistant", content: "", tool_calls: [{ function: { name: "f", arguments: { a: words } } }] }
  ]
}
const least = { rpm: 1, tpm: 1, concurrent: 1 }
const free = { rpm: 100_000, tpm: 1_000_000_000 }

const attackers: ReadonlyArray<Attacker> = [
  { name: "1 one-byte chunks", limits: least, plan: { attack: "one-byte chunks", count: 8 } },
  {
    name: "2 unread embeddings",
    limits: { ...free, concurrent: 2 },
    plan: { attack: "unread", path: "/api/embed", model: "vectors", count: 10, rate: 3 }
  },
  {
    name: "3 log-probabilities without end",
    limits: { ...free, concurrent: 1 },
    plan: { attack: "greedy", model: "logprobs", stream: false, count: 1 }
  },
  {
    name: "4 404 again and again",
    limits: { rpm: 5 },
    plan: { attack: "hammer", model: "says-404", count: 4 }
  },
  {
    name: "5 a prompt in a tool call",
    limits: free,
    budget: 1000,
    prompts: 13_000,
    plan: { attack: "volley", count: 8, ...chat("counting", hidden) }
  },
  {
    name: "6 output held back",
    limits: free,
    budget: 20_000,
    prompts: 1000,
    plan: { attack: "volley", count: 50, ...chat("held", tools) }
  },
  {
    name: "7 everything with the end",
    limits: free,
    budget: 5000,
    prompts: 200,
    plan: { attack: "volley", count: 4, ...chat("bundle") }
  },
  {
    name: "8 long streams on a small budget",
    limits: free,
    budget: 3000,
    prompts: 100,
    plan: { attack: "volley", count: 3, ...chat("deaf") }
  },
  {
    name: "9 500 again and again",
    limits: { rpm: 60 },
    plan: { attack: "hammer", model: "says-500", count: 4 }
  },
  { name: "10 lists", limits: least, plan: { attack: "hammer", path: "/api/tags", count: 16 } },
  { name: "11 strangers that leave", plan: { attack: "send and leave", body: "path", rate: 400 } },
  { name: "12 guesses", plan: { attack: "guess", count: 32, rate: 200 } },
  { name: "13 silent connections", plan: { attack: "occupy", count: 3000 } },
  {
    name: "19 slow readers",
    limits: { ...free, concurrent: 2 },
    plan: { attack: "3 kB a second", model: "one-second", count: 2 }
  },
  {
    name: "20 collected log-probabilities",
    limits: { ...free, concurrent: 4 },
    plan: { attack: "greedy", model: "logprobs", stream: false, count: 4 }
  }
]

/** Never the addresses of honest clients: what there may be of one address, it uses up. */
const addresses = ["127.0.2.1", "127.0.2.2"]

export const makeAttackers = Effect.fnUntraced(function* (
  over: () => boolean,
  /** the prefix that is guessed at */
  owner: Key,
  say: (line: string) => Effect.Effect<void>
) {
  const armed: Array<{ readonly attacker: Attacker; readonly key: Key | undefined }> = []
  for (const attacker of attackers) {
    const { budget, limits, name } = attacker
    const budgets = budget === undefined ? {} : { budgetDaily: budget }
    armed.push({
      attacker,
      key: limits === undefined ? undefined : yield* newKey(`attacker ${name}`, limits, budgets)
    })
  }
  const turn = Effect.fnUntraced(function* (i: number) {
    const { replicas } = yield* Ground
    const chosen = armed[i % armed.length]
    if (chosen === undefined) return
    const { attacker, key } = chosen
    const guessed = attacker.plan.attack === "guess" ? [{ ...owner, secret: owner.prefix }] : []
    const replica = replicas[(i + Math.floor(i / armed.length)) % 2 === 0 ? 0 : 1]
    const order = completed(
      { seconds: 7, from: addresses, ...attacker.plan },
      replica.url,
      key === undefined ? guessed : [key]
    )
    // A replica that is killed or frozen under it makes an attacker's figures mean nothing.
    const attacking = yield* startAttack(order)
    const met = yield* Effect.option(Effect.timeout(Fiber.join(attacking), "12 seconds"))
    yield* Fiber.interrupt(attacking)
    const figures = met._tag === "None" ? "no figures" : JSON.stringify(met.value)
    yield* say(`        attacker ${attacker.name}: ${figures.slice(0, 120)}`)
  })
  const run = Effect.gen(function* () {
    for (let i = 0; !over(); i += 1) yield* turn(i)
  })
  const figures = Effect.forEach(
    armed.filter(({ attacker }) => attacker.budget !== undefined),
    ({ attacker: { budget = 0, name, prompts = 0 }, key }) =>
      Effect.map(key === undefined ? Effect.succeed(0) : spentOf(key.prefix), (spent) =>
        figure(`tokens of attacker ${name} on a budget of ${budget}`, spent, (n) => n <= budget + prompts)
      )
  )
  return { keys: armed.flatMap(({ key }) => (key === undefined ? [] : [key])), run, figures }
})
