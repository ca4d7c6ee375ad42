/**
 * Gathers the calls that are made in one turn of the event loop, and sends them together.
 *
 * *Details* Effect's `RequestResolver` does the same. It keeps a Set of the calls of a batch and uses it again for a later
 * batch: V8 then keeps the fibers of past requests until the next full collection, and a request cost 40 % more CPU.
 */
import { Effect, Exit, Option } from "effect"

export interface BatchOptions<Call, A, E> {
  /** how many calls are sent together; the others are sent apart */
  readonly most: number
  /** Sends calls, and returns an answer for each of them, in their order. When it fails, all its callers fail. */
  readonly send: (calls: ReadonlyArray<Call>) => Effect.Effect<ReadonlyArray<A>, E>
  /** whether one of the calls may have caused an error for all; then each of them is sent once more, alone */
  readonly mayBeOfOne: (error: E) => boolean
}

interface Waiting<Call, A, E> {
  readonly call: Call
  readonly resume: (outcome: Effect.Effect<A, E>) => void
}

const answered = <A>(answer: A | undefined): Exit.Exit<A> =>
  answer === undefined ? Exit.die("a call without an answer") : Exit.succeed(answer)

/** An interruption does not take a call back. */
export const batchCalls = <Call, A, E>({ mayBeOfOne, most, send }: BatchOptions<Call, A, E>) => {
  let gathered: Array<Waiting<Call, A, E>> = []

  const sendTogether = Effect.fnUntraced(function* (
    some: ReadonlyArray<Waiting<Call, A, E>>
  ): Effect.fn.Return<void> {
    const exit = yield* Effect.exit(send(some.map(({ call }) => call)))
    if (some.length > 1 && Option.exists(Exit.findErrorOption(exit), mayBeOfOne))
      // At the same time: a store that stops answering now must not be waited for once for each.
      return yield* Effect.forEach(some, (one) => sendTogether([one]), {
        concurrency: "unbounded",
        discard: true
      })
    some.forEach(({ resume }, i) =>
      resume(Exit.match(exit, { onFailure: Exit.failCause, onSuccess: (answers) => answered(answers[i]) }))
    )
  })

  const sendAll = (): void => {
    const calls = gathered
    // First: a caller that fails may call again at once.
    gathered = []
    for (let i = 0; i < calls.length; i += most) Effect.runFork(sendTogether(calls.slice(i, i + most)))
  }

  return (call: Call): Effect.Effect<A, E> =>
    Effect.callback((resume) => {
      if (gathered.length === 0) setImmediate(sendAll)
      gathered.push({ call, resume })
    })
}
