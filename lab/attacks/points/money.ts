/** Points 6 to 8: tokens that nobody is charged for. */
import { Effect, Fiber } from "effect"
import type { KeyChange } from "../../../src/domain/attributes.ts"
import { Arena, newKeys, spentBy, statsOf } from "../Arena.ts"
import { type Rows } from "../figures.ts"
import type { Plan } from "../processes.ts"
import type { Assault } from "./Assault.ts"

const user = { role: "user", content: "x" }
const tool = (fields: object) => ({ tools: [{ type: "function", function: { name: "f", ...fields } }] })
const object = (properties: object) => ({ type: "object", properties })
/** Points 6 and 7: a budget, many requests at once, and what was spent of it. */
interface Spending {
  readonly point: number
  readonly name: string
  readonly budgets: KeyChange
  readonly budget: number
  readonly plan: Partial<Plan> & { readonly model: string }
  /** the words that its clients may get, when these are to be bounded too */
  readonly boundsWords?: boolean
}

/** What 50 prompts of 22 tokens may cost beyond their estimates. */
const promptsShare = 1100

const spending = ({ boundsWords = false, budget, budgets, name, plan, point }: Spending): Assault => ({
  point,
  name,
  run: Effect.fnUntraced(function* (row: Rows) {
    const keys = yield* newKeys(1, {}, budgets)
    const victim = yield* (yield* Arena).victim
    const before = yield* statsOf(plan.model)
    const met = yield* victim.attack({ attack: "volley", count: 50, seconds: 8, ...plan }, keys)
    yield* Effect.sleep("500 millis")
    const spent = yield* spentBy(keys)
    const after = yield* statsOf(plan.model)
    const generated = after.tokens - before.tokens
    const limit = budget + promptsShare
    return [
      row.atMost(`booked on a budget of ${budget}`, spent, limit),
      ...(boundsWords
        ? [
            row.atMost("  words that clients got", met["words"] ?? 0, limit),
            row.noted("  made by the model server", generated)
          ]
        : [row.atMost("  made by the model server", generated, limit)]),
      ...row.met(met)
    ]
  })
})

const chat = (more: object, model = "held", stream = true) => ({
  model,
  body: JSON.stringify({ model, stream, messages: [user], ...more })
})
const daily = { budgetDaily: 20_000 }
const heldBack = (name: string, plan: Spending["plan"]): Assault =>
  spending({ point: 6, name, budget: 20_000, budgets: daily, plan })

const held: ReadonlyArray<Assault> = [
  heldBack("with tools", chat(tool({}))),
  heldBack("with a schema", chat({ format: object({ a: { type: "string" } }) })),
  heldBack("not streamed", chat({}, "held", false)),
  heldBack("with nothing of it", chat({})),
  heldBack("everything in the final frame, with tools", chat(tool({}), "held-in-final")),
  heldBack("log-probabilities at the end", chat({ logprobs: true }, "held-logprobs")),
  heldBack("with tools on /v1", { ...chat(tool({})), path: "/v1/chat/completions" })
]

/** Left before anything was seen: at least what the model server made until then is charged. */
const leftEarly = (name: string, plan: Spending["plan"], rateMs: number): Assault => ({
  point: 6,
  name,
  run: Effect.fnUntraced(function* (row: Rows) {
    const budget = 20_000
    const leavers = yield* newKeys(1, {}, { budgetDaily: budget })
    const victim = yield* (yield* Arena).victim
    const before = yield* statsOf(plan.model)
    yield* victim.attack({ attack: "leave early", count: 20, seconds: 8, rate: rateMs, ...plan }, leavers)
    yield* Effect.sleep("500 millis")
    const spent = yield* spentBy(leavers)
    const made = (yield* statsOf(plan.model)).tokens - before.tokens
    return [
      row.atMost(`made on a budget of ${budget}`, made, budget * 1.5),
      row.atLeast("  booked", spent, Math.min(made, budget)),
      row.atMost("  booked", spent, budget + promptsShare)
    ]
  })
})

const last: ReadonlyArray<Assault> = (
  [
    ["counted by the model server", "bundle"],
    ["not counted", "bundle-uncounted"],
    ["counted as nothing", "bundle-zero"],
    ["counted absurdly", "bundle-absurd"],
    ["in one frame", "bundle-one-frame"]
  ] as const
).flatMap(([name, model]) =>
  [true, false].map((stream) =>
    spending({
      point: 7,
      name: `10,000 tokens with the end, ${name}${stream ? "" : ", not streamed"}`,
      budget: 5000,
      budgets: { budgetDaily: 5000 },
      boundsWords: true,
      plan: { ...chat({}, model, stream), count: 4, seconds: 4 }
    })
  )
)

/** Point 8: the counters go away under running streams. */
const meterDies = (name: string, model: string, how: "killed" | "frozen"): Assault => ({
  point: 8,
  name,
  run: Effect.fnUntraced(function* (row: Rows) {
    const budget = 1000
    const keys = yield* newKeys(1, {}, { budgetTotal: budget })
    const arena = yield* Arena
    const victim = yield* arena.victim
    const cpu = victim.cpuSeconds()
    const streams = yield* victim.startAttack(
      { attack: "volley", count: 2, seconds: 8, ...chat({}, model) },
      keys
    )
    // The streams have begun and hold their first tokens.
    let begun = (yield* statsOf(model)).tokens
    const first = begun
    for (let i = 0; i < 400 && begun < first + 60; i += 1) {
      yield* Effect.sleep("10 millis")
      begun = (yield* statsOf(model)).tokens
    }
    yield* how === "killed" ? arena.redis.kill : arena.redis.pause
    const met = yield* Fiber.join(streams)
    yield* how === "killed" ? arena.redis.start : arena.redis.resume
    const spent = yield* spentBy(keys, 45)
    return [
      row.atMost(`booked on a budget of ${budget}`, spent, budget + 40),
      row.atMost("  words that clients got", met["words"] ?? 0, budget + 40),
      row.noted("  CPU, seconds", victim.cpuSeconds() - cpu)
    ]
  })
})

export const money: ReadonlyArray<Assault> = [
  ...held,
  leftEarly("left after 1.5 s, with tools", chat(tool({})), 1500),
  leftEarly("left after 1.5 s, with nothing of it", chat({}), 1500),
  leftEarly("left after 1.5 s, not streamed", chat({}, "held", false), 1500),
  ...last,
  meterDies("Redis killed, a model that keeps its bound", "steady", "killed"),
  meterDies("Redis frozen, a model that keeps its bound", "steady", "frozen"),
  meterDies("Redis killed, a model that does not", "deaf", "killed"),
  meterDies("Redis frozen, a model that does not", "deaf", "frozen")
]
