/** The steps of a newcomer, each with its time. */
import { Effect } from "effect"
import { CheckoutFailed, type Environment, shell } from "../../test/support/Checkout.ts"

export const say = (line: string) => Effect.sync(() => void process.stdout.write(`${line}\n`))

export const timed = <A, E, R>(name: string, step: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const since = performance.now()
    return Effect.tap(step, () =>
      say(`${((performance.now() - since) / 1000).toFixed(1).padStart(6)} s  ${name}`)
    )
  })

/** Types a line, which must succeed, and returns what it prints. */
export const type = (folder: string, line: string, env: Environment = {}) =>
  shell(folder, line, env).pipe(
    Effect.filterOrFail(
      ({ code }) => code === 0,
      ({ stderr, stdout }) => new CheckoutFailed({ message: `${line}\n${stdout}${stderr}` })
    ),
    Effect.map(({ stdout }) => stdout)
  )
