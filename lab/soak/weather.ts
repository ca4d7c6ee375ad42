/** Fault after fault, with how long each took to be over: from its end until both replicas answer again. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect } from "effect"
import { Random } from "../../test/fuzz/Random.ts"
import type { Key } from "../scale/World.ts"
import { ask } from "./ask.ts"
import { type Fault, faultsOf, type Part } from "./faults.ts"
import { Ground } from "./Ground.ts"
import type { Observed } from "./Observed.ts"

export interface Happened {
  readonly fault: string
  readonly part: Part
  /** epoch ms */
  readonly beganAt: number
  /** milliseconds from its end until the first answer of the replica that took longest */
  readonly recoveredMs: number
}

const most = { recoveryMs: 30_000 }

const answersAgain = Effect.fnUntraced(function* (replica: 0 | 1, probe: Key, observed: Observed) {
  const { replicas } = yield* Ground
  const call = {
    kind: "good",
    key: probe,
    path: "/api/chat",
    model: "short",
    stream: false,
    leaves: false
  } as const
  const began = performance.now()
  while (performance.now() - began < most.recoveryMs) {
    const { status } = yield* ask(observed, replicas, replica, call)
    if (status === 200) return performance.now() - began
    yield* Effect.sleep("25 millis")
  }
  observed.violation(
    `replica ${replica + 1} does not answer ${most.recoveryMs} ms after everything is well again`
  )
  return most.recoveryMs
})

const suffer = Effect.fnUntraced(function* (fault: Fault, holdMs: number, probe: Key, observed: Observed) {
  const span = { from: performance.now(), to: Number.POSITIVE_INFINITY }
  observed.trouble.push(span)
  if (fault.part === "replica 1") observed.absent[0].push(span)
  if (fault.part === "replica 2") observed.absent[1].push(span)
  // A replica that starts while the backend is away has no models to offer.
  if (fault.part === "backend") observed.modelless.push(span)
  yield* fault.begin
  yield* Effect.sleep(holdMs)
  yield* fault.end
  const ended = performance.now()
  const took = yield* Effect.all([answersAgain(0, probe, observed), answersAgain(1, probe, observed)], {
    concurrency: 2
  })
  span.to = performance.now()
  return { began: span.from, ended, recoveredMs: Math.max(...took) }
})

/** Goes on until `over`; every 5 to 20 seconds, as the seed has it. Only faults whose name contains `only` happen. */
export const weather = Effect.fnUntraced(function* (
  probe: Key,
  observed: Observed,
  seed: number,
  over: () => boolean,
  say: (line: string) => Effect.Effect<void>,
  only: string
) {
  const [ground, pg] = [yield* Ground, yield* PgClient.PgClient]
  const random = new Random(seed)
  const happened: Array<Happened> = []
  const started = performance.now()
  while (!over()) {
    const all = faultsOf(ground, pg, random).filter(({ name, part }) => `${part} ${name}`.includes(only))
    const fault = all[random.int(all.length)]
    const holdMs = 500 + random.int(5500)
    const pauseMs = 5000 + random.int(9000) - Math.min(4000, holdMs)
    if (fault === undefined) continue
    yield* Effect.sleep(pauseMs)
    if (over()) break
    const violations = observed.violations.length
    const beganAt = Date.now()
    const { recoveredMs } = yield* suffer(fault, holdMs, probe, observed)
    happened.push({ fault: `${fault.part} ${fault.name}`, part: fault.part, beganAt, recoveredMs })
    const at = ((performance.now() - started) / 1000).toFixed(0)
    const wrong = observed.violations.length - violations
    yield* say(
      `  ${at.padStart(4)} s  ${`${fault.part} ${fault.name}`.padEnd(30)} for ${(holdMs / 1000).toFixed(1)} s, ` +
        `answers again after ${Math.round(recoveredMs)} ms${wrong === 0 ? "" : `, ${wrong} VIOLATIONS`}`
    )
  }
  return happened
})
