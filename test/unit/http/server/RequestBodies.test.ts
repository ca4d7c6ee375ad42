import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import * as Metrics from "../../../../src/observability/Metrics.ts"
import type { Caller } from "../../../../src/domain/Caller.ts"
import { type Share, RequestBodies, spare } from "../../../../src/http/server/RequestBodies.ts"
import { callerWith } from "../../../support/permits.ts"
import { testWith } from "../../../support/testWith.ts"

const maxBytes = 1000
const layer = RequestBodies.layer({ maxBytes }).pipe(Layer.provideMerge(Metrics.layer))

/** A body of `caller` that is being received until it is let go. */
const held = Effect.fnUntraced(function* (caller: Caller) {
  const bodies = yield* RequestBodies
  const [taken, over] = [yield* Deferred.make<Share>(), yield* Deferred.make<void>()]
  const fiber = yield* Effect.forkChild(
    bodies.withShare(caller, (share) => Effect.andThen(Deferred.succeed(taken, share), Deferred.await(over))),
    { startImmediately: true }
  )
  const share = yield* Effect.raceFirst(
    Deferred.await(taken),
    Effect.andThen(Fiber.join(fiber), Effect.never)
  )
  return {
    share,
    leave: Fiber.interrupt(fiber),
    end: Effect.andThen(Deferred.succeed(over, undefined), Fiber.join(fiber))
  }
})

const caller = (keyId: string): Caller => ({ ...callerWith("all"), keyId })
const [a, b, c] = [caller("a"), caller("b"), caller("c")]

const test = testWith(it.effect, layer)

test("when one key takes memory, then it gets half, and the next one half of the rest", function* () {
  const bodies = yield* RequestBodies
  const first = yield* held(a)
  assert.isUndefined(first.share.grow(500))
  assert.deepInclude(first.share.grow(501), { _tag: "RateLimited", limit: "concurrency", retryAfterS: 1 })
  const second = yield* held(b)
  assert.isUndefined(second.share.grow(250))
  // It holds no more than a quarter: the crowd is the reason.
  assert.deepInclude(second.share.grow(251), { _tag: "Unavailable", retryAfterS: 1, crowded: true })
  assert.strictEqual(bodies.bytes(), 750)
  yield* first.end
  assert.isUndefined(second.share.grow(500))
  yield* second.leave
  assert.strictEqual(bodies.bytes(), 0)
})

test("when strangers take the memory before authentication, then small bodies pass and no key's memory is gone", function* () {
  const bodies = yield* RequestBodies
  const [first, second] = [bodies.early(), bodies.early()]
  assert.isUndefined(first.grow(4096 + 500))
  assert.deepInclude(second.grow(4096 + 1), { _tag: "Unavailable", retryAfterS: 1 })
  assert.isUndefined(second.grow(4096))
  const { share } = yield* held(a)
  assert.isUndefined(share.grow(500))
  first.close()
  first.close()
  assert.isUndefined(second.grow(4096 + 500))
  second.close()
  assert.strictEqual(bodies.bytes(), 500)
})

test("when a key has more bodies than slots and a few, then it is refused, and nobody else is", function* () {
  const most = a.limits.concurrent + spare
  const all = yield* Effect.forEach(Array.from({ length: most }), () => held(a))
  const refused = yield* Effect.flip(held(a))
  assert.deepInclude(refused, { _tag: "RateLimited", limit: "concurrency", value: a.limits.concurrent })
  yield* held(c)
  yield* all[0]?.leave ?? Effect.void
  yield* held(a)
})
