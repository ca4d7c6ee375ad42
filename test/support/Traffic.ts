/** Clients that ask without pause, and what became of each of their requests. */
import { Effect, Fiber, type Scope } from "effect"
import { call, type Gateway, hello } from "./Gateway.ts"

export interface Outcome {
  readonly status: number
  /** the error's type in a refusal */
  readonly type: string
  /** performance.now() when it was sent */
  readonly began: number
  readonly ms: number
  readonly stream: boolean
}

export interface Traffic {
  readonly outcomes: ReadonlyArray<Outcome>
  /** Lets every client finish the request it is at. */
  readonly stop: Effect.Effect<void>
}

/** Every second request streams; one that was refused is tried again a moment later. */
export const startTraffic = Effect.fnUntraced(function* (
  secrets: ReadonlyArray<string>,
  clients: number
): Effect.fn.Return<Traffic, never, Gateway | Scope.Scope> {
  const outcomes: Array<Outcome> = []
  const state = { over: false }
  const client = Effect.fnUntraced(function* (i: number) {
    const secret = secrets[i % secrets.length] ?? ""
    for (let n = i; !state.over; n++) {
      const stream = n % 2 === 0
      const began = performance.now()
      const { status, text } = yield* call("/api/chat", { secret, body: hello({ stream }) })
      const type = status === 200 ? "" : (/"type":"(\w+)"/.exec(text)?.[1] ?? "?")
      outcomes.push({ status, type, began, ms: performance.now() - began, stream })
      yield* Effect.sleep(status === 200 ? "2 millis" : "20 millis")
    }
  })
  const running = yield* Effect.forkScoped(
    Effect.forEach(
      Array.from({ length: clients }, (_, i) => i),
      client,
      { concurrency: "unbounded", discard: true }
    ),
    { startImmediately: true }
  )
  return {
    outcomes,
    stop: Effect.suspend(() => {
      state.over = true
      return Fiber.join(running)
    })
  }
})
