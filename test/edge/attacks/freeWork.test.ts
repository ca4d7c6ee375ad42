/** docs/hardening.md, A22, A23 and A25: requests that cost no tokens are bounded too, for a key and for strangers. */
import { connect } from "node:net"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { call, eventually, Gateway, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { comesTrue, makeStopwatch, atMost } from "../../support/wait.ts"
import { unharmed } from "./checks.ts"
import { inWorld } from "../../support/testWith.ts"

/** Requests in the audit, and the rows they take. */
const audited = Effect.fnUntraced(function* (where: string, value: string | null) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ n: number; requests: number; most: number }>`
    SELECT count(*)::integer AS n, coalesce(sum(repeats), 0)::integer AS requests,
      coalesce(max(repeats), 0)::integer AS most
    FROM audit_log WHERE ${sql.literal(where)} IS NOT DISTINCT FROM ${value}::text`
  return row ?? { n: 0, requests: 0, most: 0 }
})

const atOnce = <A, E, R>(count: number, one: Effect.Effect<A, E, R>) =>
  Effect.forEach(Array.from({ length: count }), () => one, { concurrency: 20 })

/** Malformed at its very end. Reading it costs so many units of free work. */
const malformed = (units: number) => `{"model":"m","prompt":"${"x".repeat(units * 16_384)}",}`
/** More than there are, and ten seconds' worth. */
const large = malformed(1000)

inWorld(layerGateway({ MAX_REQUEST_BODY_BYTES: "16777216", ANONYMOUS_ROWS_PER_MINUTE: "10" }))(
  "free work",
  (test) => {
    test("when a key has used up its free work, then it gets 429, and one row a second stands for them (A22)", function* () {
      const [{ secret, prefix }, other] = [yield* newKey(), yield* newKey()]
      assert.strictEqual((yield* call("/api/tags", { secret })).status, 200)
      assert.strictEqual((yield* call("/api/generate", { secret, body: large })).status, 400)
      const refused = yield* unharmed(
        Effect.forEach(
          ["/api/tags", "/v1/models", "/api/version", "/api/chat"],
          (path) => atOnce(10, call(path, { secret, ...(path === "/api/chat" ? { body: hello() } : {}) })),
          { concurrency: "unbounded" }
        )
      )
      for (const { headers, status, text } of refused.flat()) {
        assert.strictEqual(status, 429)
        assert.isAtLeast(Number(headers.get("retry-after")), 1)
        assert.isTrue(headers.has("x-ratelimit-limit-requests"))
        const { error } = JSON.parse(text)
        assert.strictEqual(error.type, "rate_limit_exceeded")
        assert.strictEqual(error.message, "limit of 100 unmetered or refused requests per second reached")
      }
      assert.strictEqual(
        (yield* call("/api/tags", { secret: other.secret })).status,
        200,
        "another key has its own"
      )
      const rows = yield* eventually(audited("key_prefix", prefix), ({ requests }) => requests === 42)
      assert.strictEqual(rows.requests, 42, "every request is in the audit")
      assert.isAtMost(rows.n, 2 + 10)
      assert.isAbove(rows.most, 1)
      const { text } = yield* call("/metrics")
      assert.match(text, /^gateway_requests_total\{[^}]*status="429"[^}]*\} 40$/m)
    })

    test("when a key has used up its free work, then its bodies are not parsed (A22)", function* () {
      const { secret } = yield* newKey()
      const answers = yield* unharmed(atOnce(8, call("/api/generate", { secret, body: large })))
      const statuses = answers.map(({ status }) => status)
      // All were let in before the first was read; one was parsed.
      assert.strictEqual(statuses.filter((status) => status === 400).length, 1, statuses.join())
      for (const status of statuses) assert.oneOf(status, [400, 429, 503])
    })

    test("when requests are admitted, then they take nothing from the key's free work (A22)", function* () {
      const { secret } = yield* newKey()
      // On a busy machine a store may answer too late: that is a 503, and the client asks again.
      const chat = call("/api/chat", { secret, body: hello({ stream: false }) })
      const answers = yield* atOnce(
        300,
        Effect.repeat(chat, { until: ({ status }) => status !== 503, times: 20 })
      )
      assert.deepStrictEqual(new Set(answers.map(({ status }) => status)), new Set([200]))
      assert.strictEqual((yield* call("/api/tags", { secret })).status, 200)
    })

    test("when strangers connect, send and reset, then an honest refusal is quick and few rows are written (A23)", function* () {
      const { url } = yield* Gateway
      const { hostname, port } = new URL(url)
      const before = yield* audited("key_prefix", null)
      const started = performance.now()
      let sent = 0
      const flood = setInterval(() => {
        for (let n = 0; n < 5; n += 1) {
          const socket = connect(Number(port), hostname, () => {
            sent += 1
            socket.write("GET /api/pull HTTP/1.1\r\nHost: h\r\n\r\n")
            setTimeout(() => socket.resetAndDestroy(), 3)
          })
          socket.on("error", () => undefined)
        }
      }, 10)
      yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(flood)))
      assert.isTrue(yield* comesTrue(() => sent >= 600))
      let slowestMs = 0
      for (let n = 0; n < 5; n += 1) {
        const started = makeStopwatch()
        assert.strictEqual((yield* call("/api/pull")).status, 403)
        slowestMs = Math.max(slowestMs, started())
      }
      clearInterval(flood)
      // Three seconds is what it was.
      assert.isBelow(slowestMs, atMost(2500))
      // Some were reset before they were read: they are no requests. The rows of a second are written when it is over.
      let after = before
      yield* eventually(Effect.delay(audited("key_prefix", null), "1200 millis"), (now) => {
        const isSame = now.requests === after.requests
        after = now
        return isSame && now.requests > before.requests
      })
      assert.isAtMost(after.requests - before.requests, sent + 5)
      // Ten of their own, and one row a second for each way in which the others ended.
      const seconds = (performance.now() - started) / 1000
      assert.isAtMost(after.n - before.n, 11 + 3 * seconds)
    })
  }
)

inWorld(layerGateway())("a key that floods", (test) => {
  test("when a key does not wait as it is told, then its refusals come late and its bodies are not read (A25)", function* () {
    const { secret } = yield* newKey({ rpm: 1 })
    const body = `{"model":"${"x".repeat(200_000)}`
    // Real time: the rate is measured.
    const began = performance.now()
    const counts = new Map<number, number>()
    yield* Effect.forEach(
      Array.from({ length: 16 }),
      () =>
        Effect.gen(function* () {
          while (performance.now() - began < 4000 || !counts.has(429)) {
            const { status } = yield* call("/api/generate", { secret, body })
            counts.set(status, (counts.get(status) ?? 0) + 1)
          }
        }),
      { concurrency: "unbounded" }
    ).pipe(unharmed)
    // 200 units at once and 100 a second, 13 for each body; and one answer a second on each connection.
    const seconds = (performance.now() - began) / 1000
    assert.isAtMost(counts.get(400) ?? 0, 30 + 8 * seconds)
    assert.isAtMost(counts.get(429) ?? 0, 300 * seconds)
  })

  test("when a key waits as it is told, then the next request is served (A25)", function* () {
    const { secret } = yield* newKey()
    for (let round = 0; round < 3; round += 1) {
      let refused = yield* call("/api/generate", { secret, body: malformed(15) })
      while (refused.status !== 429) refused = yield* call("/api/generate", { secret, body: malformed(15) })
      assert.strictEqual(refused.status, 429)
      yield* Effect.sleep(Number(refused.headers.get("retry-after")) * 1000)
      const started = makeStopwatch()
      assert.strictEqual((yield* call("/api/tags", { secret })).status, 200)
      assert.isBelow(started(), atMost(700))
    }
  })
})
