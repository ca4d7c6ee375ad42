/** Calls that are gathered into commands: which of them, in which order, and what becomes of failures. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber, Result } from "effect"
import { makeCommandBatch } from "../../../src/infra/CommandBatch.ts"

/** A connection that notes what is written, and a deadline that the test ends. */
const makeWire = () => {
  const written: Array<string> = []
  let expire: () => void = () => undefined
  const batch = makeCommandBatch<string>({
    ms: 400,
    timer: (_ms, run) => {
      expire = run
      return () => undefined
    },
    cork: () => {
      written.push("cork")
      return () => void written.push("uncork")
    },
    failed: (cause) => String(cause)
  })
  const gather = batch.gather<string, string>(3, (calls, answer) => {
    written.push(`[${calls.join(" ")}]`)
    if (calls.includes("unwritable")) throw new Error("not written")
    if (calls.includes("silent")) return
    setImmediate(() => {
      if (calls.includes("broken")) answer.fail(new Error("lost"))
      else answer.succeed(calls.includes("short") ? [] : calls.map((call) => call.toUpperCase()))
    })
  })
  const gathered = (place: string, call: string) =>
    gather(place, call, {
      reply: (reply) => {
        if (reply === "UNREADABLE") throw new Error("not read")
        return Effect.succeed(reply)
      },
      failure: Effect.fail
    })
  const other = batch.command<string>((answer) => {
    written.push("other")
    answer.succeed("done")
  })
  return { written, gathered, other, expire: () => expire() }
}

const atOnce = <A, E>(effects: ReadonlyArray<Effect.Effect<A, E>>) =>
  Effect.forEach(effects, Effect.result, { concurrency: "unbounded" })

describe("calls of one turn of the event loop", () => {
  it.live("when they have one place, then they become one command, and at most so many as one may have", () =>
    Effect.gen(function* () {
      const { gathered, written } = makeWire()
      const replies = yield* atOnce(["a", "b", "c", "d"].map((call) => gathered("x", call)))
      assert.deepStrictEqual(written, ["cork", "[a b c]", "[d]", "uncork"])
      assert.deepStrictEqual(replies.map(Result.getOrThrow), ["A", "B", "C", "D"])
      yield* gathered("x", "e")
      assert.deepStrictEqual(written.slice(4), ["cork", "[e]", "uncork"])
    })
  )

  it.live("when they have several places, then each place has its command", () =>
    Effect.gen(function* () {
      const { gathered, written } = makeWire()
      yield* atOnce([gathered("x", "a"), gathered("y", "b"), gathered("x", "c")])
      assert.deepStrictEqual(written, ["cork", "[a c]", "[b]", "uncork"])
    })
  )

  it.live("when another command comes, then what was gathered before is written before it", () =>
    Effect.gen(function* () {
      const { gathered, other, written } = makeWire()
      yield* atOnce([gathered("x", "a"), gathered("x", "b"), other, gathered("x", "c")])
      assert.deepStrictEqual(written, ["cork", "[a b]", "other", "[c]", "uncork"])
    })
  )

  it.live("when a command cannot be written, then its callers may make other calls at once", () =>
    Effect.gen(function* () {
      const { gathered, written } = makeWire()
      const again = Effect.catch(gathered("x", "unwritable"), () => gathered("x", "again"))
      assert.strictEqual(yield* Effect.timeout(again, "2 seconds"), "AGAIN")
      assert.strictEqual(yield* Effect.timeout(gathered("x", "later"), "2 seconds"), "LATER")
      assert.deepStrictEqual(
        written.filter((event) => event.startsWith("[")),
        ["[unwritable]", "[again]", "[later]"]
      )
    })
  )

  it.live("when a command fails, then its callers fail, and no others", () =>
    Effect.gen(function* () {
      const { gathered } = makeWire()
      const replies = yield* atOnce([
        gathered("x", "a"),
        gathered("x", "broken"),
        gathered("y", "b"),
        gathered("z", "short"),
        gathered("w", "unwritable")
      ])
      assert.deepStrictEqual(
        replies.map((reply) => (Result.isSuccess(reply) ? reply.success : reply.failure)),
        ["Error: lost", "Error: lost", "B", "no answer to this call", "Error: not written"]
      )
    })
  )

  it.live(
    "when the reader of a reply throws, then its caller has a defect, and the others have their replies",
    () =>
      Effect.gen(function* () {
        const { gathered } = makeWire()
        const exits = yield* Effect.forEach(
          ["a", "unreadable", "b"].map((call) => gathered("x", call)),
          Effect.exit,
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(
          exits.map((exit) => (Exit.isSuccess(exit) ? exit.value : Cause.hasDies(exit.cause))),
          ["A", true, "B"]
        )
      })
  )

  it.live("when a command is not answered in time, then its callers fail", () =>
    Effect.gen(function* () {
      const { expire, gathered } = makeWire()
      const waiting = yield* Effect.forkChild(atOnce([gathered("x", "a"), gathered("y", "silent")]), {
        startImmediately: true
      })
      yield* Effect.callback<void>(
        (resume) => void setImmediate(() => setImmediate(() => resume(Effect.void)))
      )
      expire()
      const [answered, late] = yield* Fiber.join(waiting)
      assert.strictEqual(answered && Result.getOrThrow(answered), "A")
      assert.strictEqual(late && Result.isFailure(late) ? late.failure : undefined, "no answer in 400 ms")
    })
  )
})
