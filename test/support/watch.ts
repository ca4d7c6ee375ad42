/** Looks after every case of a test file whether the invariants hold of the gateways it has running. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Cause, Data, Effect, type Scope } from "effect"
import { afterEachTest, expected } from "./checks.ts"
import type { Meter } from "../../src/gates/meter/Meter.ts"
import type { Registry } from "../../src/admin/Registry.ts"
import { answerProblems } from "./invariants/answers.ts"
import { leaksIn, type Private, privateIn } from "./invariants/leaks.ts"
import { heapMiB, processState } from "./invariants/processState.ts"
import { type Answer, listen, secrets, type Witness } from "./invariants/Witness.ts"
import { bookProblems, rowProblems } from "./invariants.ts"

export class Broken extends Data.TaggedError("Broken")<{ readonly problems: ReadonlyArray<string> }> {
  override get message(): string {
    return `after this case the invariants do not hold:\n  ${this.problems.join("\n  ")}`
  }
}

/** Of this process: what nobody caught. Vitest fails the run for it too, but not the case that did it. */
const uncaught: Array<string> = []
process.on("unhandledRejection", (reason) => uncaught.push(String(reason)))

/** Room for what a test keeps itself: records of its backend, pools of its clients. */
const spare = { heapMiB: 128, descriptors: 150 }

export interface Watched {
  readonly url: string
  readonly backend: URL
  readonly witness: Witness
  /** how long what is open may stay so: a lease, and a look of the reconciler */
  readonly patienceMs: number
}

const metricsOf = (url: string): Effect.Effect<string> =>
  Effect.promise((signal) => fetch(`${url}/metrics`, { signal }).then((response) => response.text()))

/** Says that this test takes counters away or changes them, so that the gateway may have to repair them. */
export const expectRepairs = Effect.sync(() => void (expected.repairs = true))

/** A repair hides a wrong charge from the look at the books, so it is a problem of its own. */
const repairs = (lines: ReadonlyArray<string>) =>
  expected.repairs ? [] : lines.filter((line) => /"counters (?:of a tenant )?repaired"/.test(line))

/** What no patience mends. */
const said = (answers: ReadonlyArray<Answer>, lines: ReadonlyArray<string>, known: Private) => [
  ...answers.flatMap((answer) => answerProblems(answer, known)),
  ...lines.flatMap((line) =>
    privateIn(line, known).map((leak) => `${leak} in the log: ${line.slice(0, 300)}`)
  ),
  ...repairs(lines).map((line) => `the counters were wrong until they were repaired: ${line}`),
  ...uncaught.splice(0).map((reason) => `nobody caught ${reason}`)
]

/** What becomes right once all that was begun has ended. */
const left = Effect.fnUntraced(function* (
  { url }: Watched,
  answers: ReadonlyArray<Answer>,
  known: Private,
  before: { readonly heapMiB: number; readonly descriptors: number }
) {
  const descriptors = processState(process.pid)?.descriptors ?? 0
  const heap = heapMiB(before.heapMiB + spare.heapMiB)
  const metrics = yield* metricsOf(url)
  return [
    ...(yield* rowProblems(answers, known)),
    ...(yield* bookProblems),
    ...leaksIn(metrics, known).map((leak) => `${leak} in the metrics`),
    ...(heap > before.heapMiB + spare.heapMiB
      ? [`${heap.toFixed()} MiB of heap, at first ${before.heapMiB.toFixed()}`]
      : []),
    ...(descriptors > before.descriptors + spare.descriptors
      ? [`${descriptors} descriptors, at first ${before.descriptors}`]
      : [])
  ]
})

/** Has the gateway looked at after every case, for as long as the scope lives. */
export const watch = Effect.fnUntraced(function* (
  one: Watched
): Effect.fn.Return<void, never, PgClient.PgClient | Meter | Registry | Scope.Scope> {
  const context = yield* Effect.context<PgClient.PgClient | Meter | Registry>()
  const before = { heapMiB: heapMiB(), descriptors: processState(process.pid)?.descriptors ?? 0 }
  const check = Effect.gen(function* () {
    const answers = one.witness.answers.splice(0)
    const lines = one.witness.lines.splice(0)
    const known: Private = { secrets, addresses: [one.backend.host] }
    const wrong = said(answers, lines, known)
    if (wrong.length > 0) return yield* new Broken({ problems: wrong.slice(0, 20) })
    const began = performance.now()
    // The stores may just be coming back.
    const look = left(one, answers, known, before).pipe(
      Effect.catchCause((cause) => Effect.succeed([`the books cannot be read: ${Cause.pretty(cause)}`]))
    )
    let problems = yield* look
    while (problems.length > 0 && performance.now() - began < one.patienceMs) {
      yield* Effect.sleep("100 millis")
      problems = yield* look
    }
    problems = [...problems, ...said([], one.witness.lines.splice(0), known)]
    if (problems.length > 0) return yield* new Broken({ problems: problems.slice(0, 20) })
  })
  const run = () => Effect.runPromiseWith(context)(check)
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      afterEachTest.add(run)
      return listen(new URL(one.url).origin, one.witness)
    }),
    (deafen) =>
      Effect.sync(() => {
        afterEachTest.delete(run)
        deafen()
      })
  )
})
