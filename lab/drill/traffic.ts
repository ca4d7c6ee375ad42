/** Clients of the drill: each asks, reads the answer, and asks again. */
import { Effect, type Scope } from "effect"
import { Agent } from "undici"
import type { Key } from "../scale/World.ts"
import { posting } from "../../test/support/posting.ts"

export interface Answer {
  readonly at: number
  readonly ms: number
  /** 0: no answer */
  readonly status: number
  /** the error's type; "page": the answer is not the gateway's */
  readonly type: string
  readonly requestId: string | undefined
}

const agent = new Agent({ connections: 64 })

const ask = (url: string, { secret }: Key): Effect.Effect<Answer> =>
  Effect.promise(async () => {
    const at = performance.now()
    const answer = (status: number, type: string, requestId?: string): Answer => ({
      at,
      ms: performance.now() - at,
      status,
      type,
      requestId
    })
    try {
      const { body, headers, statusCode } = await agent.request({
        origin: url,
        path: "/api/chat",
        ...posting(secret, { model: "m", stream: false, messages: [{ role: "user", content: "Hello" }] }),
        signal: AbortSignal.timeout(15_000)
      })
      const text = await body.text()
      const id = headers["x-request-id"]
      if (typeof id !== "string") return answer(statusCode, "page")
      return answer(statusCode, statusCode === 200 ? "" : (/"type":"(\w+)"/.exec(text)?.[1] ?? "page"), id)
    } catch (error) {
      return answer(
        0,
        error instanceof Error && error.name === "TimeoutError" ? "no answer in 15 s" : "connection lost"
      )
    }
  })

export interface Traffic {
  /** all since the last `clear` */
  readonly answers: ReadonlyArray<Answer>
  readonly clear: () => void
  /** no more calls; done when all are answered */
  readonly pause: Effect.Effect<void>
  readonly resume: () => void
}

/** Runs until the scope closes. */
export const traffic = Effect.fnUntraced(function* (
  url: string,
  keys: ReadonlyArray<Key>
): Effect.fn.Return<Traffic, never, Scope.Scope> {
  const answers: Array<Answer> = []
  const state = { paused: false, underWay: 0 }
  const one = (key: Key) =>
    Effect.suspend(() => {
      if (state.paused) return Effect.void
      state.underWay += 1
      return Effect.map(ask(url, key), (answer) => {
        state.underWay -= 1
        answers.push(answer)
      })
    })
  yield* Effect.forkScoped(
    Effect.forEach(keys, (key) => Effect.forever(Effect.andThen(one(key), Effect.sleep("250 millis"))), {
      concurrency: "unbounded",
      discard: true
    })
  )
  const pause = Effect.gen(function* () {
    state.paused = true
    while (state.underWay > 0) yield* Effect.sleep("20 millis")
  })
  return {
    answers,
    clear: () => void answers.splice(0),
    pause,
    resume: () => void (state.paused = false)
  }
})
