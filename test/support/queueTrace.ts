/** Random calls of the queue's rules, and what they decide: the same for the same seed. */
import type { Seen, Ticket } from "../../src/gates/queue/QueueStore.ts"
import type { FairScheduler } from "../../src/gates/queue/FairScheduler.ts"

/** A generator of its own, so that a trace can be repeated. */
const makeRandom = (seed: number) => {
  let state = seed * 2_654_435_761 + 12_345
  return (below: number): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    return Math.floor((state / 4_294_967_296) * below)
  }
}

const tenants = [
  { name: "t1", weight: 1 },
  { name: "t2", weight: 3 },
  { name: "t3", weight: 0.5 }
] as const

export interface Trace {
  readonly seed: number
  readonly steps: number
  /** the model of a request, by the number of it */
  readonly model: (n: number) => string
  /** what the server says it has loaded */
  readonly seen?: Seen
  readonly bounds: { readonly maxLoadedModels?: number; readonly turnMaxMs?: number }
}

/** One line for each decision. */
export const decisions = (scheduler: FairScheduler, { bounds: more, model, seed, seen, steps }: Trace) => {
  const random = makeRandom(seed)
  const bounds = { places: 1 + random(4), depth: random(9), ...more }
  const lines: Array<string> = []
  const known = new Map<string, { readonly replica: string; waits: boolean }>()
  let [now, count] = [1_000_000, 0]
  const say = (line: string, messages: ReadonlyArray<{ id: string; retryAfterS?: number }>) => {
    for (const { id, retryAfterS } of messages) {
      const one = known.get(id)
      if (retryAfterS !== undefined) known.delete(id)
      else if (one !== undefined) one.waits = false
    }
    const told = messages.map(({ id, retryAfterS }) => `${id} ${retryAfterS ?? "goes"}`)
    lines.push([line, ...told].join(", "))
  }
  for (let step = 0; step < steps; step++) {
    const which = random(100)
    now += [0, 1, 10, 500, 3000, 20_000][random(6)] ?? 0
    const replica = random(2) === 0 ? "a" : "b"
    if (which < 45) {
      const { name: tenant, weight } = tenants[random(3)] ?? tenants[0]
      const id = `r${count}`
      const ticket: Ticket = {
        id,
        tenant,
        key: `${tenant} ${random(2)}`,
        weight,
        model: model(count++),
        priority: random(4) === 0 ? "batch" : "interactive",
        cost: 1 + random(50)
      }
      const { answer, messages } = scheduler.enter(now, replica, ticket, bounds)
      if (answer._tag !== "Full") known.set(id, { replica, waits: answer._tag === "Waiting" })
      const said = answer._tag === "Full" ? `full ${answer.retryAfterS}` : answer._tag
      say(`enter ${id} ${said}`, messages)
    } else if (which < 85) {
      const [id] = [...known.keys()].slice(random(known.size))
      if (id === undefined) continue
      const leaves = known.get(id)?.waits === true
      known.delete(id)
      if (leaves) {
        const { answer, messages } = scheduler.leave(now, id, bounds)
        say(`leave ${id} ${answer}`, messages)
      } else {
        const { messages } = scheduler.end(now, id, random(90), bounds, random(200))
        say(`end ${id}`, messages)
      }
    } else if (which < 97) {
      for (const name of ["a", "b"]) {
        const own = [...known].filter(([, one]) => one.replica === name)
        const ids = (waits: boolean) => own.filter(([, one]) => one.waits === waits).map(([id]) => id)
        const { answer, messages } = scheduler.beat(now, name, ids(false), ids(true), bounds, seen)
        const granted = answer.messages.flatMap(({ id, retryAfterS }) =>
          retryAfterS === undefined ? [id] : []
        )
        say(`beat ${name} ${granted.join(" ")}; ${answer.unknown.join(" ")}`, messages)
        for (const id of answer.unknown) known.delete(id)
      }
    } else {
      // A replica dies: its requests come back with its lease.
      for (const [id, one] of known) if (one.replica === replica) known.delete(id)
      now += 31_000
    }
  }
  return lines
}
