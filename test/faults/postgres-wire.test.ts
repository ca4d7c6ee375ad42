/** A bad network to Postgres: what was written there and never heard of is written once, and nobody is served on it. */
import { assert, describe } from "@effect/vitest"
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { call, eventually, Fake, hello } from "../support/Gateway.ts"
import { asIf, booksClosed, chat, granted, layerWired, usedKey, Wires, writing } from "../support/Wires.ts"
import { atMost } from "../support/wait.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

let serial = 0

/** Rows of the log, their tokens and the open intents of a request, by the client's own id. */
const rowsOf = Effect.fnUntraced(function* (id: string) {
  const rows = yield* sql<{ readonly status: number; readonly tokens: number; readonly intents: number }>`
    SELECT status, (tokens_in + tokens_out)::float8 AS tokens,
      (SELECT count(*) FROM intents WHERE client_request_id = ${id})::float8 AS intents
    FROM audit_log WHERE client_request_id = ${id}`
  return rows.map((row) => ({ ...row }))
})

inWorld(layerWired())("a bad network to Postgres", (test) => {
  describe("an answer of the database that was lost after it had committed", () => {
    for (const stream of [true, false]) {
      const kind = stream ? "stream" : "whole answer"

      test(`when it is the intent's (${kind}), then the answer is 503 without the backend, no intent stays, all is given back`, function* () {
        const [{ postgres }, backend] = [yield* Wires, yield* Fake]
        const { secret } = yield* usedKey
        const [cuts, asked, id] = [postgres.cuts, backend.requests.length, `lost-${++serial}`]
        yield* postgres.loseReply(writing("intent", id))
        const lost = yield* chat(secret, stream, id)
        assert.strictEqual(postgres.cuts, cuts + 1)
        assert.strictEqual(lost.status, 503, lost.text)
        assert.isBelow(lost.ms, atMost(2000))
        assert.strictEqual(backend.requests.length, asked)
        const rows = yield* eventually(rowsOf(id), ([row]) => row?.intents === 0)
        assert.deepStrictEqual(rows, [{ status: 503, tokens: 0, intents: 0 }])
        yield* asIf(secret, 1)
        yield* booksClosed
      })

      test(`when it is the completion's (${kind}), then the answer is whole, once in the log and once in the ledger`, function* () {
        const [{ postgres }, sql] = [yield* Wires, yield* SqlClient.SqlClient]
        const { secret, prefix } = yield* usedKey
        const [cuts, id] = [postgres.cuts, `lost-${++serial}`]
        yield* postgres.loseReply(writing("completion", id), 2)
        const answer = yield* chat(secret, stream, id)
        assert.strictEqual(postgres.cuts, cuts + 2)
        assert.strictEqual(answer.status, 200, answer.text)
        assert.include(answer.text, '"eval_count":3')
        assert.deepStrictEqual(yield* rowsOf(id), [{ status: 200, tokens: granted.cost, intents: 0 }])
        const ledger = yield* sql<{ readonly n: number }>`
            SELECT sum(requests)::float8 AS n FROM ledger JOIN api_keys k ON k.id = key_id WHERE k.prefix = ${prefix}`
        assert.strictEqual(ledger[0]?.n, 2)
        yield* asIf(secret, 2)
        yield* booksClosed
      })
    }

    test("when it is a refusal's, then the refusal is the same, with one row", function* () {
      const { postgres } = yield* Wires
      const { secret } = yield* usedKey
      const [cuts, id] = [postgres.cuts, `lost-${++serial}`]
      yield* postgres.loseReply(writing("completion", id))
      const refused = yield* call("/api/chat", {
        secret,
        body: hello({ model: "unknown" }),
        headers: { "x-request-id": id }
      })
      assert.strictEqual(refused.status, 403)
      const rows = yield* eventually(rowsOf(id), (found) => found.length > 0)
      assert.strictEqual(postgres.cuts, cuts + 1)
      assert.deepStrictEqual(rows, [{ status: 403, tokens: 0, intents: 0 }])
      yield* asIf(secret, 1)
      yield* booksClosed
    })

    test("when it is the reconciler's, then what a dead process had used is charged once", function* () {
      const [{ postgres }, sql, meter] = [yield* Wires, yield* PgClient.PgClient, yield* Meter]
      const { prefix, secret } = yield* usedKey
      const cuts = postgres.cuts
      const [id, request] = [`lost-${++serial}`, crypto.randomUUID()]
      // Nobody else writes its id to the database.
      yield* postgres.loseReply((bytes) => bytes.includes(request))
      const keys = yield* sql<{ readonly group: string; readonly key: string }>`
          SELECT tenant_id::text AS group, id::text AS key FROM api_keys WHERE prefix = ${prefix}`
      const { group, key } = keys[0] ?? { group: "", key: "" }
      const verdict = yield* meter.reserve(
        {
          account: { group, key },
          limits: { rpm: granted.rpm, tpm: granted.tpm, concurrent: 1 },
          budgets: { total: granted.budget }
        },
        { id: request, tokens: 50, slot: true }
      )
      assert.strictEqual(verdict._tag, "Reserved")
      yield* sql`
          INSERT INTO intents (request_id, tenant_id, key_id, key_prefix, model, endpoint, method, streamed, client_ip,
            client_request_id, arrived_at, admitted_at, held, tokens_in, tokens_out, lease_until)
          VALUES (${request}::text::uuid, ${group}::text::uuid, ${key}::text::uuid, ${prefix}, 'm:latest', '/api/chat', 'POST',
            true, '127.0.0.1', ${id}, now(), now(), 50, 20, 10, now() - interval '1 second')`
      const rows = yield* eventually(rowsOf(id), (found) => found.length > 0)
      assert.deepStrictEqual(rows, [{ status: 500, tokens: 30, intents: 0 }])
      yield* eventually(
        Effect.sync(() => postgres.cuts),
        (now) => now > cuts
      )
      assert.isAbove(postgres.cuts, cuts)
      yield* postgres.heal
      const ledger = yield* sql<{ readonly n: number }>`
          SELECT sum(tokens_in + tokens_out)::float8 AS n FROM ledger JOIN api_keys k ON k.id = key_id
          WHERE k.prefix = ${prefix}`
      assert.strictEqual(ledger[0]?.n, granted.cost + 30)
      assert.strictEqual((yield* eventually(chat(secret), ({ status }) => status === 200)).status, 200)
      yield* booksClosed
    })
  })
})
