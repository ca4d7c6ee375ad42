/** Compressed bodies: what comes out, what is refused, and how much memory and work one can take. */
import { deflateSync, gzipSync, zstdCompressSync } from "node:zlib"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { BadRequest, PayloadTooLarge, Unavailable } from "../../../src/domain/Errors.ts"
import { type Coding, makeUnpack } from "../../../src/http/unpack.ts"
import { type BodyShare, MemoryLedger } from "../../../src/memory/MemoryLedger.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { callerWith } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"

const limit = 262_144
const pack: Readonly<Record<Coding, (bytes: Buffer) => Buffer>> = {
  gzip: gzipSync,
  "x-gzip": gzipSync,
  deflate: deflateSync,
  zstd: zstdCompressSync
}
const codings: ReadonlyArray<Coding> = ["gzip", "x-gzip", "deflate", "zstd"]

/** Grants up to `most` bytes, and remembers what was asked for. */
const makeShare = (most = Infinity) => {
  const asked: Array<number> = []
  const grow: BodyShare["grow"] = (bytes) => {
    asked.push(bytes)
    return bytes <= most
      ? undefined
      : new Unavailable({ gate: "Limiter", retryAfterS: 1, crowded: true, cause: "none left" })
  }
  return { asked, share: { grow } }
}

/** Of its own memory, as a large body is received. */
const own = (bytes: Buffer) => {
  const copy = Buffer.allocUnsafeSlow(bytes.length)
  bytes.copy(copy)
  return copy
}

const inMemory = MemoryLedger.layer({ maxBytes: 268_435_456, requestBytes: 0 }).pipe(
  Layer.provide(Metrics.layer)
)

const test = testWith(it.live, inMemory)

test("when a body is packed, then its bytes come out, they are counted, and the packed ones are freed", function* () {
  const unpack = yield* makeUnpack
  // It does not compress well, so there are many pieces in both forms.
  const text = JSON.stringify(Array.from({ length: 15_000 }, (_, i) => Math.sin(i)))
  for (const coding of codings) {
    for (const body of [
      Buffer.from(text.slice(0, limit)),
      Buffer.from("{}"),
      Buffer.alloc(limit, "x"),
      Buffer.alloc(0)
    ]) {
      const [{ asked, share }, packed] = [makeShare(), own(pack[coding](body))]
      const size = packed.length
      const bytes = yield* unpack("t", coding, packed, limit, share)
      assert.isTrue(bytes.equals(body), coding)
      assert.isAtMost(Math.max(...asked), size + Math.max(4096, Math.min(limit, 2 * body.length)))
      assert.isTrue(body.length === 0 || Math.max(...asked) >= size + body.length)
      if (size > 100_000) assert.strictEqual(packed.length, 0, "the packed bytes stay")
    }
  }
})

test("when a small body would become a large one, then it ends at the bound, in memory and in work", function* () {
  const unpack = yield* makeUnpack
  for (const coding of codings) {
    const bomb = pack[coding](Buffer.alloc(100_000_000))
    const [{ asked, share }, { external }] = [makeShare(), process.memoryUsage()]
    const refused = yield* Effect.flip(unpack("t", coding, bomb, limit, share))
    assert.deepStrictEqual(refused, new PayloadTooLarge({ limitBytes: limit }))
    assert.isAtMost(Math.max(...asked), bomb.length + limit)
    assert.isBelow(process.memoryUsage().external - external, 20_000_000, coding)
    // Each piece has 16 KiB.
    assert.isAtMost(asked.length, limit / 16_384 + 1, coding)
  }
})

test("when a body is unpacked, then the ledger has it beside the packed one, and never more than the bound", function* () {
  const [unpack, ledger] = [yield* makeUnpack, yield* MemoryLedger]
  const owner = { caller: callerWith("all"), cut: () => undefined }
  for (const [zeros, fits] of [
    [limit, true],
    [100_000_000, false]
  ] as const) {
    for (const coding of codings) {
      const packed = pack[coding](Buffer.alloc(zeros))
      const [share, size] = [
        yield* Effect.fromResult(ledger.share({ share: undefined }, owner)),
        packed.length
      ]
      let most = 0
      const grow: BodyShare["grow"] = (bytes) => {
        const problem = share.grow(bytes)
        most = Math.max(most, ledger.bytes())
        return problem
      }
      const exit = yield* Effect.exit(unpack("t", coding, packed, limit, { grow }))
      assert.strictEqual(Exit.isSuccess(exit), fits, coding)
      assert.strictEqual(most, size + limit, coding)
      share.close()
      assert.strictEqual(ledger.bytes(), 0)
    }
  }
})

test("when there is no memory for what comes out, then it is refused, and the next one is taken", function* () {
  const unpack = yield* makeUnpack
  const packed = gzipSync(Buffer.alloc(200_000))
  assert.instanceOf(
    yield* Effect.flip(unpack("t", "gzip", packed, limit, makeShare(100_000).share)),
    Unavailable
  )
  assert.lengthOf(yield* unpack("t", "gzip", packed, limit, makeShare().share), 200_000)
})

test("when a body is not what its coding says, is cut or has more behind it, then it is refused in words", function* () {
  const unpack = yield* makeUnpack
  for (const coding of codings) {
    const good = pack[coding](Buffer.from("{}"))
    const twice = coding.endsWith("gzip") ? [] : [Buffer.concat([good, good])]
    for (const bad of [
      Buffer.from("{}"),
      Buffer.alloc(0),
      good.subarray(0, -2),
      Buffer.concat([good, Buffer.from("{}")]),
      ...twice
    ])
      assert.deepStrictEqual(
        yield* Effect.flip(unpack("t", coding, bad, limit, makeShare().share)),
        new BadRequest({ detail: `body: expected ${coding}, whole and with nothing behind it` })
      )
  }
})

test("when a zstd body wants a window beyond 8 MiB, then it is refused before it has one", function* () {
  const unpack = yield* makeUnpack
  /** A frame of one raw block, without its size in its head, as a stream is written: it needs all of its window. */
  const wide = (log: number) =>
    Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3, 0x11, 0, 0, 0x7b, 0x7d])
  assert.strictEqual(String(yield* unpack("t", "zstd", wide(23), limit, makeShare().share)), "{}")
  const before = process.memoryUsage().external
  assert.instanceOf(yield* Effect.flip(unpack("t", "zstd", wide(27), limit, makeShare().share)), BadRequest)
  assert.isBelow(process.memoryUsage().external - before, 20_000_000)
})

test("when many come at once, then one is unpacked at a time, and one whose client left gives its turn back", function* () {
  const unpack = yield* makeUnpack
  let [now, most] = [0, 0]
  const packed = gzipSync(Buffer.alloc(limit, "x"))
  const one = Effect.suspend(() => {
    let isFirst = true
    const grow = () => {
      if (isFirst) most = Math.max(most, ++now)
      isFirst = false
      return undefined
    }
    return Effect.ensuring(
      unpack("t", "gzip", packed, limit, { grow }),
      Effect.sync(() => void (now -= isFirst ? 0 : 1))
    )
  })
  const begun = yield* Deferred.make<void>()
  const left = yield* Effect.forkChild(
    unpack("t", "gzip", gzipSync(Buffer.alloc(limit)), limit, {
      grow: () => {
        Deferred.doneUnsafe(begun, Effect.void)
        return undefined
      }
    })
  )
  const others = yield* Effect.forkChild(Effect.all([one, one, one, one], { concurrency: 4 }))
  yield* Deferred.await(begun)
  yield* Fiber.interrupt(left)
  assert.isTrue((yield* Fiber.join(others)).every(({ length }) => length === limit))
  assert.strictEqual(most, 1)
})
