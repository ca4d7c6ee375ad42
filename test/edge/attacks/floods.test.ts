/** docs/hardening.md, A07 and A08: a flood of bad keys slows down itself, and not paying clients. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { mintKey, prefixOf } from "../../../src/domain/Key.ts"
import { call, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawPost, type Talk } from "../../support/RawClient.ts"
import { unharmed, say } from "./checks.ts"
import { inWorld } from "../../support/testWith.ts"

const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const started = performance.now()
    const value = yield* effect
    return { value, ms: performance.now() - started }
  })

const body = JSON.stringify(hello())

/** Each on a connection of its own, which ends with it. */
const atOnce = (count: number, secret: () => string | undefined, path = "/api/chat") =>
  timed(
    Effect.forEach(
      Array.from({ length: count }),
      () => Effect.map(say(rawPost(path, secret(), body)), lastOf),
      { concurrency: "unbounded" }
    )
  )

const lastOf = ({ responses }: Talk) => ({
  status: responses[0]?.status ?? 0,
  retryAfter: responses[0]?.headers.get("retry-after")
})

inWorld(layerGateway())("floods without a key", (test) => {
  for (const [name, secret, path, status] of [
    ["unknown prefixes, A08", () => mintKey("tg_"), "/api/chat", 401],
    ["no key at all, A08", () => undefined, "/api/chat", 401],
    ["blocked paths", () => undefined, "/api/pull", 403]
  ] as const) {
    test(`when more come than the burst (${name}), then each refusal waits its turn`, function* () {
      const { ms, value } = yield* unharmed(atOnce(300, secret, path))
      for (const answer of value) assert.strictEqual(answer.status, status)
      // A hundred at once, two hundred at 200 a second. Only a lower bound says that they waited.
      assert.isAbove(ms, 900)
      yield* Effect.sleep("1 second")
    })
  }

  test("when wrong secrets of one prefix come, then they get 401 in turn or 503 with Retry-After, and the key works (A07)", function* () {
    const { secret } = yield* newKey()
    assert.strictEqual((yield* call("/api/tags", { secret })).status, 200)
    const wrong = () => prefixOf(secret) + mintKey("tg_").slice(-32)
    const [flood, paid] = yield* Effect.all(
      [
        unharmed(atOnce(300, wrong)),
        Effect.forEach(Array.from({ length: 20 }), () => timed(call("/api/tags", { secret })))
      ],
      { concurrency: 2 }
    )
    for (const { retryAfter, status } of flood.value) {
      assert.oneOf(status, [401, 503])
      if (status === 503) assert.strictEqual(retryAfter, "1")
    }
    // Each 401 waits its turn: 100 at once, then 200 a second. A 503 does not, because the owner of the key may be among them.
    const unauthorized = flood.value.filter(({ status }) => status === 401).length
    assert.isAtMost(unauthorized, 101 + flood.ms / 5)
    assert.isAbove(flood.value.length, unauthorized)
    for (const { ms, value } of paid) {
      assert.strictEqual(value.status, 200)
      // Nobody who pays stands in that line.
      assert.isBelow(ms, flood.ms)
    }
  })
})
