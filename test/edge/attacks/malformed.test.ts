/** What Node's parser refuses has no audit row. It is answered once, in the error shape, and counted. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { type MalformedReason, malformedReasons } from "../../../src/observability/Metrics.ts"
import { call, eventually } from "../../support/Gateway.ts"
import { assertRefusal, layerHasty, unharmed, say } from "./checks.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const cases: ReadonlyArray<readonly [MalformedReason, string, number]> = [
  ["syntax", "NONSENSE\r\n\r\n", 400],
  ["syntax", "GET /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400],
  ["syntax", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400],
  ["size", `GET /healthz HTTP/1.1\r\nHost: h\r\nX-A: ${"a".repeat(20_000)}\r\n\r\n`, 431],
  ["time", "GET /healthz HTTP/1.1\r\nX-A: ", 408],
  ["tunnel", "CONNECT evil:443 HTTP/1.1\r\nHost: evil\r\n\r\n", 403],
  ["expectation", "POST /api/chat HTTP/1.1\r\nHost: h\r\nExpect: a-pony\r\nContent-Length: 2\r\n\r\n", 417]
]

const counted = Effect.map(
  call("/metrics"),
  ({ text }) =>
    new Map(
      [...text.matchAll(/^tollgate_malformed_requests_total\{reason="(\w+)"\} (\d+)$/gm)].map(
        ([, reason = "", count]) => [reason, Number(count)]
      )
    )
)

const rows = sql`SELECT request_id FROM audit_log`

inWorld(layerHasty)("malformed HTTP", (test) => {
  test("when the parser refuses bytes, then the answer has the error shape, is counted once by its reason, and not audited (D10)", function* () {
    assert.deepStrictEqual(
      yield* counted,
      new Map(malformedReasons.map((reason) => [reason, 0] as const)),
      "every reason has a series before it first happens"
    )
    const before = (yield* rows).length
    for (const [reason, bytes, status] of cases) {
      const was = yield* counted
      const { closed, responses } = yield* unharmed(say(bytes))
      assert.strictEqual(responses.length, 1, bytes.slice(0, 60))
      assertRefusal(responses[0], status, bytes.slice(0, 60))
      assert.isTrue(closed, bytes.slice(0, 60))
      const expected = new Map(was).set(reason, (was.get(reason) ?? 0) + 1)
      const now = yield* eventually(counted, (is) => is.get(reason) === expected.get(reason))
      assert.deepStrictEqual(now, expected, bytes.slice(0, 60))
    }
    assert.strictEqual((yield* rows).length, before)
  })

  test("when a client leaves in the middle of a head, then nothing malformed is counted", function* () {
    const was = yield* counted
    for (let n = 0; n < 5; n += 1) {
      yield* say("GET /healthz HTTP/1.1\r\nX-A: ", {
        also: (socket) => void setTimeout(() => socket.resetAndDestroy(), 20)
      })
    }
    yield* Effect.sleep("200 millis")
    assert.deepStrictEqual(yield* counted, was)
  })
})
