/** Clients of the queue: each sends one chat and says what became of it. */
import { Duration, Effect, Fiber, type Scope } from "effect"
import { poolOf, typeIn } from "../Load.ts"
import type { Key } from "../World.ts"
import { posting } from "../../../test/support/posting.ts"

export interface Answer {
  readonly tenant: string
  /** 0: no answer */
  readonly status: number
  readonly type: string
  /** from the call to the last byte, milliseconds */
  readonly ms: number
  /** `X-Queue-Wait-Ms`; NaN without it */
  readonly queuedMs: number
  /** performance.now() at the end */
  readonly endedAt: number
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
}

/** Who waits in line waits as long as it takes. */
const patient = { connections: 1024, headersTimeout: 0, bodyTimeout: 0 }

/** An interrupted call closes its connection, as a client that leaves does. */
export const ask = (url: string, { name, secret }: Key): Effect.Effect<Answer> =>
  Effect.promise(async (signal) => {
    const began = performance.now()
    const answer = (status: number, type: string, headers: Answer["headers"]): Answer => ({
      tenant: name,
      status,
      type,
      ms: performance.now() - began,
      queuedMs: Number(headers["x-queue-wait-ms"]),
      endedAt: performance.now(),
      headers
    })
    try {
      const { body, headers, statusCode } = await poolOf(url, patient).request({
        path: "/api/chat",
        // Without a bound, as most clients ask: far more is expected than is used.
        ...posting(secret, { model: "m", stream: false, messages: [{ role: "user", content: "Hello" }] }),
        signal
      })
      const text = await body.text()
      return answer(statusCode, statusCode === 200 ? "" : typeIn(text), headers)
    } catch {
      // Its replica was killed, or the client left.
      return answer(0, "lost", {})
    }
  })

export interface Run {
  readonly answers: Array<Answer>
  /** waits for what is under way, at most ten seconds */
  readonly stop: Effect.Effect<void>
}

/** Starts callers that go on until they are stopped. */
const runs = Effect.fnUntraced(function* (
  caller: (answers: Array<Answer>, over: () => boolean) => Effect.Effect<void>,
  count: number
): Effect.fn.Return<Run, never, Scope.Scope> {
  const answers: Array<Answer> = []
  let over = false
  const fiber = yield* Effect.forkScoped(
    Effect.forEach(
      Array.from({ length: count }, () => caller(answers, () => over)),
      (one) => one,
      { concurrency: "unbounded", discard: true }
    )
  )
  const stop = Effect.suspend(() => {
    over = true
    return Fiber.await(fiber).pipe(
      Effect.timeoutOrElse({ duration: "10 seconds", orElse: () => Fiber.interrupt(fiber) }),
      Effect.asVoid
    )
  })
  return { answers, stop }
})

/** So many calls of one key at any time, on all replicas in turn. */
export const flood = (urls: ReadonlyArray<string>, key: Key, parallel: number) => {
  let turn = 0
  return runs(
    (answers, over) =>
      Effect.gen(function* () {
        while (!over()) {
          const answer = yield* ask(urls[turn++ % urls.length] ?? "", key)
          answers.push(answer)
          // One that was refused, or whose replica is down, waits a moment, as clients do.
          if (answer.status !== 200) yield* Effect.sleep("1 second")
        }
      }),
    parallel
  )
}

/** One call of each key every so often on average, at random times, whether the last one is answered or not. */
export const nowAndThen = (urls: ReadonlyArray<string>, keys: ReadonlyArray<Key>, everyMs: number) => {
  let next = 0
  return runs((answers, over) => {
    const key = keys[next++]
    if (key === undefined) return Effect.void
    return Effect.scoped(
      Effect.gen(function* () {
        const calls: Array<Fiber.Fiber<void>> = []
        for (let n = 0; ; n++) {
          yield* Effect.sleep(Duration.millis(-everyMs * Math.log(1 - Math.random())))
          if (over()) break
          const call = Effect.map(
            ask(urls[n % urls.length] ?? "", key),
            (answer) => void answers.push(answer)
          )
          calls.push(yield* Effect.forkScoped(call))
        }
        yield* Fiber.joinAll(calls)
      })
    )
  }, keys.length)
}
