import { assert, it } from "@effect/vitest"
import { Data, Deferred, Effect, Exit, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { type GroupCommitOptions, makeGroupCommit } from "../../../src/audit/GroupCommit.ts"
import { makeStalledProcess } from "../../support/StalledProcess.ts"
import { testWith } from "../../support/testWith.ts"

class StoreDown extends Data.TaggedError("StoreDown")<{}> {}
class BadRow extends Data.TaggedError("BadRow")<{}> {}
type Failure = StoreDown | BadRow

/** A store whose writes a test holds up, breaks, and reads back. */
class Store {
  readonly batches: Array<ReadonlyArray<number>> = []
  readonly rows: Array<number> = []
  down = false
  gate: Deferred.Deferred<void> | undefined
  bad = -1

  readonly write = Effect.fnUntraced({ self: this }, function* (this: Store, batch: ReadonlyArray<number>) {
    this.batches.push(batch)
    if (this.gate !== undefined) yield* Deferred.await(this.gate)
    if (this.down) return yield* new StoreDown()
    if (batch.includes(this.bad)) return yield* new BadRow()
    this.rows.push(...batch)
  })
}

const make = Effect.fnUntraced(function* (more: Partial<GroupCommitOptions<number, Failure>> = {}) {
  const store = new Store()
  const commit = yield* makeGroupCommit<number, Failure>({
    write: store.write,
    poisoned: (error) => error._tag === "BadRow",
    onStoreFailure: "fail",
    maxBatch: 100,
    capacity: 1000,
    ...more
  })
  return { commit, store }
})

/** To the end of this turn of the event loop, when what it brought is written. */
const turn = Effect.callback<void>((resume) => void setImmediate(() => resume(Effect.void)))

const fork = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

const held = Effect.fnUntraced(function* (store: Store) {
  const gate = yield* Deferred.make<void>()
  store.gate = gate
  // The test runs it later.
  // @effect-diagnostics-next-line returnEffectInGen:off
  return Effect.sync(() => {
    store.gate = undefined
    Deferred.doneUnsafe(gate, Exit.void)
  })
})

const test = testWith(it.effect)

test("when items come in one turn, then they are written at its end, and those that come meanwhile are written together after it", function* () {
  const { commit, store } = yield* make()
  const release = yield* held(store)
  const first = yield* Effect.forEach([1, 2], (n) => fork(commit.submit(n)))
  assert.deepStrictEqual(store.batches, [])
  yield* turn
  assert.deepStrictEqual(store.batches, [[1, 2]])
  const second = yield* Effect.forEach([3, 4, 5], (n) => fork(commit.submit(n)))
  yield* turn
  assert.deepStrictEqual(store.batches, [[1, 2]])
  assert.strictEqual(commit.backlog(), 5)
  yield* release
  yield* Fiber.joinAll([...first, ...second])
  assert.deepStrictEqual(store.batches, [
    [1, 2],
    [3, 4, 5]
  ])
  assert.strictEqual(commit.backlog(), 0)
  yield* commit.submit(6)
  assert.deepStrictEqual(store.rows, [1, 2, 3, 4, 5, 6])
})

test("when there are two writers, then at most two writes run at once and each has items", function* () {
  const { commit, store } = yield* make({ writers: 2 })
  const release = yield* held(store)
  const fibers: Array<Fiber.Fiber<void, unknown>> = []
  for (const items of [[1, 2], [3], [4], [5]]) {
    for (const item of items) fibers.push(yield* fork(commit.submit(item)))
    yield* turn
  }
  assert.deepStrictEqual(store.batches, [[1, 2], [3]])
  assert.strictEqual(commit.backlog(), 5)
  yield* TestClock.adjust("3 seconds")
  assert.strictEqual(commit.lagMs(), 3000)
  yield* release
  yield* Fiber.joinAll(fibers)
  assert.deepStrictEqual(store.batches, [[1, 2], [3], [4, 5]])
  assert.strictEqual(commit.lagMs(), 0)
  yield* commit.submit(6)
  assert.deepStrictEqual(store.rows, [1, 2, 3, 4, 5, 6])
})

test("when many items come, then no batch is larger than its bound and the queue refuses more than its capacity", function* () {
  const { commit, store } = yield* make({ maxBatch: 2, capacity: 5 })
  const release = yield* held(store)
  const fibers = yield* Effect.forEach([1, 2, 3, 4, 5], (n) => fork(commit.submit(n)))
  const full = yield* Effect.flip(commit.submit(6))
  assert.deepInclude(full, { _tag: "QueueFull", capacity: 5 })
  yield* release
  yield* Fiber.joinAll(fibers)
  assert.deepStrictEqual(store.batches, [[1, 2], [3, 4], [5]])
  yield* commit.submit(6)
})

test("when one row cannot be written, then its submitter fails and the other rows are written", function* () {
  for (const onStoreFailure of ["fail", "keep"] as const) {
    const { commit, store } = yield* make({ onStoreFailure })
    store.bad = 3
    const exits = yield* Effect.forEach([1, 2, 3, 4], (n) => Effect.exit(commit.submit(n)), {
      concurrency: "unbounded"
    })
    assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, true, false, true], onStoreFailure)
    assert.deepStrictEqual(store.rows, [1, 2, 4])
  }
})

test("when the store fails while the rows of a batch are written one by one, then none of them is lost", function* () {
  const store = new Store()
  store.bad = 2
  const { commit } = yield* make({
    write: (batch) =>
      Effect.suspend(() => {
        store.down = store.batches.length === 1
        return store.write(batch)
      }),
    onStoreFailure: "keep"
  })
  const fibers = yield* Effect.forEach([1, 2, 3], (n) => fork(Effect.exit(commit.submit(n))))
  yield* TestClock.adjust("2 seconds")
  assert.deepStrictEqual(store.rows, [1, 3])
  const exits = yield* Effect.forEach(fibers, Fiber.join)
  assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, false, true])
})

test("when a row cannot be encoded, then its submitter fails and the other rows are written", function* () {
  const written: Array<number> = []
  const commit = yield* makeGroupCommit<number, Failure>({
    write: (batch) =>
      Effect.sync(() => {
        if (batch.includes(2)) throw new TypeError("no JSON")
        written.push(...batch)
      }),
    poisoned: () => false,
    onStoreFailure: "keep",
    maxBatch: 10,
    capacity: 10
  })
  const exits = yield* Effect.forEach([1, 2, 3], (n) => Effect.exit(commit.submit(n)), {
    concurrency: "unbounded"
  })
  assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, false, true])
  assert.deepStrictEqual(written, [1, 3])
})

test("when the store comes back, then the kept items are written in order, and the lag was shown meanwhile", function* () {
  const settled: Array<number> = []
  const { commit, store } = yield* make({
    onStoreFailure: "keep",
    capacity: 4,
    settled: (n) => settled.push(n)
  })
  assert.strictEqual(commit.lagMs(), 0)
  store.down = true
  const fibers = yield* Effect.forEach([1, 2, 3, 4], (n) => fork(commit.submit(n)))
  yield* TestClock.adjust("10 seconds")
  assert.isAtLeast(commit.lagMs(), 10_000)
  // What waits to be tried again fills the queue like everything else: an outage is bounded too.
  assert.strictEqual(commit.backlog(), 4)
  assert.deepInclude(yield* Effect.flip(commit.submit(5)), { _tag: "QueueFull" })
  assert.deepStrictEqual(settled, [])
  store.down = false
  yield* TestClock.adjust("2 seconds")
  yield* Fiber.joinAll(fibers)
  assert.deepStrictEqual(store.rows, [1, 2, 3, 4])
  assert.deepStrictEqual(settled, [1, 2, 3, 4])
  assert.strictEqual(commit.lagMs(), 0)
})

test("when the store is away, then it is tried soon at first and later every two seconds", function* () {
  const { commit, store } = yield* make({ onStoreFailure: "keep" })
  store.down = true
  yield* fork(commit.submit(1))
  yield* TestClock.adjust("1 seconds")
  assert.strictEqual(store.batches.length, 4)
  yield* TestClock.adjust("60 seconds")
  assert.isAtMost(store.batches.length, 36)
  assert.isAtLeast(store.batches.length, 30)
})

test("when a submitter leaves, then its item is taken back unless it is being written or was offered", function* () {
  const { commit, store } = yield* make()
  const release = yield* held(store)
  const flying = yield* fork(commit.submit(1))
  yield* turn
  const queued = yield* fork(commit.submit(2))
  const offered = yield* commit.offer(3)
  yield* Fiber.interrupt(flying)
  yield* Fiber.interrupt(queued)
  yield* release
  yield* offered
  assert.deepStrictEqual(store.rows, [1, 3])
})

test("when it closes, then it writes what it accepted, accepts nothing more, and counts what it gave up", function* () {
  const { commit, store } = yield* make({ onStoreFailure: "keep" })
  store.down = true
  const first = yield* commit.offer(1)
  const closing = yield* fork(commit.close(5000))
  assert.deepInclude(yield* Effect.flip(commit.submit(2)), { _tag: "QueueClosed" })
  store.down = false
  yield* TestClock.adjust("3 seconds")
  assert.strictEqual(yield* Fiber.join(closing), 0)
  yield* first
  assert.deepStrictEqual(store.rows, [1])

  const { commit: hopeless, store: gone } = yield* make({ onStoreFailure: "keep" })
  gone.down = true
  const lost = [yield* hopeless.offer(1), yield* hopeless.offer(2)]
  const ending = yield* fork(hopeless.close(5000))
  yield* TestClock.adjust("5 seconds")
  assert.strictEqual(yield* Fiber.join(ending), 2)
  for (const written of lost) assert.deepInclude(yield* Effect.flip(written), { _tag: "QueueClosed" })
})

test("when the last item is taken back while it closes, then nothing is waited for", function* () {
  const { commit, store } = yield* make()
  const queued = yield* fork(commit.submit(1))
  const closing = yield* fork(commit.close(5000))
  yield* Fiber.interrupt(queued)
  assert.strictEqual(yield* Fiber.join(closing), 0)
  assert.deepStrictEqual(store.rows, [])
})

test("when items are late, then each wait ends after its own time, and only submitted items that nobody writes are taken back", function* () {
  const late: Array<readonly [item: number, isBeingWritten: boolean]> = []
  const { commit, store } = yield* make({
    lateAfterMs: 500,
    late: (...told) => Effect.sync(() => void late.push(told))
  })
  const release = yield* held(store)
  const flying = yield* fork(Effect.flip(commit.submit(1)))
  yield* turn
  const queued = yield* fork(Effect.flip(commit.submit(2)))
  yield* TestClock.adjust("200 millis")
  const offered = yield* fork(Effect.flip(yield* commit.offer(3)))
  yield* TestClock.adjust("299 millis")
  assert.isUndefined(flying.pollUnsafe())
  yield* TestClock.adjust("1 millis")
  assert.deepInclude(yield* Fiber.join(flying), { _tag: "Late" })
  assert.deepInclude(yield* Fiber.join(queued), { _tag: "Late" })
  yield* TestClock.adjust("199 millis")
  assert.isUndefined(offered.pollUnsafe())
  yield* TestClock.adjust("1 millis")
  assert.deepInclude(yield* Fiber.join(offered), { _tag: "Late" })
  assert.deepStrictEqual(late, [
    [1, true],
    [2, false],
    [3, false]
  ])
  yield* release
  while (commit.backlog() > 0) yield* turn
  assert.deepStrictEqual(store.rows, [1, 3])
  // After a pause, later items are watched too.
  yield* TestClock.adjust("10 seconds")
  yield* Effect.asVoid(held(store))
  const later = yield* fork(Effect.flip(commit.submit(4)))
  yield* TestClock.adjust("500 millis")
  assert.deepInclude(yield* Fiber.join(later), { _tag: "Late" })
})

test("when this process was too busy to see that an item was written, then the item is not late", function* () {
  const { answer, on, stall } = yield* makeStalledProcess
  const { commit } = yield* on(make({ lateAfterMs: 50, write: () => answer }))
  for (const item of [1, 2]) {
    const fiber = yield* fork(commit.submit(item))
    // The write has begun.
    yield* turn
    yield* stall(60)
    yield* Fiber.join(fiber)
  }
})

test("when an item was written before anyone waits for it, then the wait ends at once", function* () {
  const { commit, store } = yield* make({ lateAfterMs: 500 })
  const written = yield* commit.offer(1)
  store.bad = 2
  const failed = yield* commit.offer(2)
  yield* turn
  while (commit.backlog() > 0) yield* turn
  yield* written
  assert.deepInclude(yield* Effect.flip(failed), { _tag: "BadRow" })
  assert.deepStrictEqual(store.rows, [1])
})

test("when a submitter is suspended at any step, then its item is written, and a late one is told", function* () {
  const { commit, store } = yield* make({ onStoreFailure: "keep", lateAfterMs: 500 })
  // A fiber of Effect is suspended after 2048 operations, between any two effects.
  const busy = Effect.fnUntraced(function* (steps: number) {
    for (let n = 0; n < steps; n += 1) yield* Effect.sync(() => n)
    yield* yield* commit.offer(steps)
  })
  for (let steps = 2000; steps < 2060; steps += 1) {
    const fiber = yield* fork(busy(steps))
    while (fiber.pollUnsafe() === undefined && commit.lagMs() < 1) yield* turn
    yield* Fiber.join(fiber)
    assert.strictEqual(commit.backlog(), 0, `${steps}`)
  }
  store.down = true
  for (let steps = 2000; steps < 2060; steps += 1) {
    const fiber = yield* fork(Effect.flip(busy(steps)))
    yield* turn
    yield* TestClock.adjust("500 millis")
    assert.deepInclude(yield* Fiber.join(fiber), { _tag: "Late" }, `${steps}`)
  }
})
