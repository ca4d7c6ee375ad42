/** hardening A22, A23: what costs no tokens is bounded all the same, for a key and for strangers. */
import { connect } from "node:net"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { call, eventually, Gateway, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { unharmed } from "./checks.ts"

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

layer(layerGateway(), { excludeTestServices: true, timeout: 60_000 })("free work", (it) => {
  it.effect(
    "A22 when a key asks for more lists than its free work covers, then it gets 429 and one row a second",
    () =>
      Effect.gen(function* () {
        const [{ secret, prefix }, other] = [yield* newKey(), yield* newKey()]
        const answers = yield* unharmed(atOnce(1500, call("/api/tags", { secret })))
        const refused = answers.filter(({ status }) => status === 429)
        assert.strictEqual(answers.filter(({ status }) => status === 200).length + refused.length, 1500)
        assert.isAtLeast(refused.length, 100)
        for (const { headers, text } of refused) {
          assert.isAtLeast(Number(headers.get("retry-after")), 1)
          assert.isTrue(headers.has("x-ratelimit-limit-requests"))
          const { error } = JSON.parse(text)
          assert.strictEqual(error.type, "rate_limit_exceeded")
          assert.strictEqual(error.message, "limit of 100 unmetered or refused requests per second reached")
        }
        assert.strictEqual((yield* call("/api/tags", { secret: other.secret })).status, 200)
        const rows = yield* eventually(audited("key_prefix", prefix), ({ requests }) => requests === 1500)
        assert.strictEqual(rows.requests, 1500, "every request is in the audit")
        assert.isAbove(rows.most, 1)
        const { text } = yield* call("/metrics")
        assert.match(
          text,
          new RegExp(`^gateway_requests_total\\{[^}]*status="429"[^}]*\\} ${refused.length}$`, "m")
        )
        yield* Effect.sleep("1200 millis")
        assert.strictEqual((yield* call("/api/tags", { secret })).status, 200)
      })
  )

  it.effect("A22 when a key sends large malformed bodies, then only a few are parsed", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const body = `{"model":"m","messages":[${'{"role":"user","content":"x"},'.repeat(8000)}]}`
      const started = performance.now()
      const answers = yield* unharmed(atOnce(60, call("/api/chat", { secret, body })))
      const seconds = (performance.now() - started) / 1000
      const parsed = answers.filter(({ status }) => status === 400).length
      assert.isAtLeast(parsed, 1)
      // 16 units each: 200 at once, 100 more a second.
      assert.isAtMost(parsed, Math.ceil((200 + 100 * seconds) / 15) + 1)
      for (const { status } of answers) assert.oneOf(status, [400, 429])
    })
  )

  it.effect("A22 when requests are admitted, then they take nothing from the key's free work", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const answers = yield* unharmed(
        atOnce(400, call("/api/chat", { secret, body: hello({ stream: false }) }))
      )
      assert.deepStrictEqual(new Set(answers.map(({ status }) => status)), new Set([200]))
    })
  )

  it.effect(
    "A23 when strangers connect, send and reset, then an honest refusal is quick and few rows are written",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Gateway
        const { hostname, port } = new URL(url)
        const before = yield* audited("key_prefix", null)
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
        yield* Effect.sleep("1500 millis")
        let slowestMs = 0
        for (let n = 0; n < 5; n += 1) {
          const started = performance.now()
          assert.strictEqual((yield* call("/api/pull")).status, 403)
          slowestMs = Math.max(slowestMs, performance.now() - started)
        }
        clearInterval(flood)
        assert.isBelow(slowestMs, 2000)
        const after = yield* eventually(
          audited("key_prefix", null),
          ({ requests }) => requests - before.requests >= sent,
          3000
        )
        // Some were reset before they were read: they are no requests.
        assert.isAtMost(after.requests - before.requests, sent + 5)
        assert.isBelow(after.n - before.n, after.requests - before.requests)
      })
  )
})
