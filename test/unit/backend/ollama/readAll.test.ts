/** A body of one object is read in the callback of the socket, in its order and within its bounds. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { readAll, type Response } from "../../../../src/backend/ollama/readAll.ts"

const room = { tryCollect: () => true, collect: () => Effect.void }

/** A response whose next bytes come as soon as those before them are taken, before `takeWaiting` returns, as undici may give them. */
const eager = (texts: ReadonlyArray<string>) => {
  const waiting: Array<Buffer> = []
  const left = texts.map((text) => Buffer.from(text))
  let wake: (() => void) | undefined
  let aborted: Error | undefined
  const receive = (): void => {
    const next = left.shift()
    if (next !== undefined) waiting.push(next)
    wake?.()
  }
  const response: Response = {
    get isOver() {
      return left.length === 0 && waiting.length === 0
    },
    takeWaiting: () => {
      if (waiting.length === 0) return undefined
      const taken = waiting.splice(0)
      receive()
      return taken
    },
    take: () => Effect.succeed([]),
    onReady: (listener) => {
      wake = listener
    },
    abort: (reason) => {
      aborted = reason
    }
  }
  return { response, receive, aborted: () => aborted }
}

it.effect("when bytes come while others are taken, then they come after those", () =>
  Effect.gen(function* () {
    const { receive, response } = eager(["one ", "two ", "three ", "four"])
    const reading = yield* Effect.forkChild(readAll(response, 100, room), { startImmediately: true })
    receive()
    assert.strictEqual((yield* Fiber.join(reading)).text, "one two three four")
  })
)

it.effect("when a body is longer than its bound, then it fails and the call is aborted", () =>
  Effect.gen(function* () {
    const { aborted, receive, response } = eager(["12345", "678901"])
    const reading = yield* Effect.forkChild(Effect.flip(readAll(response, 10, room)), {
      startImmediately: true
    })
    receive()
    assert.deepInclude(yield* Fiber.join(reading), { _tag: "BackendFailed", fault: "protocol" })
    assert.match(String(aborted()?.cause), /more than 10 bytes/)
  })
)

it.effect("when there is no memory for more, then nothing more is read until there is", () =>
  Effect.gen(function* () {
    const { receive, response } = eager(["first", "second"])
    let give: (() => void) | undefined
    const waiting = {
      tryCollect: () => give !== undefined,
      collect: () =>
        Effect.callback<void>((resume) => {
          give = () => resume(Effect.void)
        })
    }
    const reading = yield* Effect.forkChild(readAll(response, 100, waiting), { startImmediately: true })
    receive()
    assert.isUndefined(reading.pollUnsafe())
    give?.()
    assert.strictEqual((yield* Fiber.join(reading)).text, "firstsecond")
  })
)
