/** A database that answers, but whose tables take no rows: nothing is given away unrecorded, and it heals by itself. */
import { assert } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { auditRow, call, eventually, Fake, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"

const run = (statement: string) =>
  Effect.orDie(Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.asVoid(sql.unsafe(statement))))

/** What Postgres says when a disk is full (SQLSTATE 53100), said by a trigger. */
const fill = (table: string) =>
  run(`CREATE FUNCTION full_${table}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`).pipe(
    Effect.andThen(run(`CREATE TRIGGER full_disk BEFORE INSERT ON ${table} EXECUTE FUNCTION full_${table}()`))
  )
const empty = (table: string) => run(`DROP TRIGGER full_disk ON ${table}`)

const faults = [
  {
    what: "a log whose disk is full",
    begin: fill("audit_log"),
    end: empty("audit_log")
  },
  {
    what: "a log that somebody has taken away",
    begin: run("ALTER TABLE audit_log RENAME TO gone"),
    end: run("ALTER TABLE gone RENAME TO audit_log")
  }
]

const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })

inWorld(layerGateway())("tables that take no rows", (test) => {
  for (const { begin, end, what } of faults) {
    test(`when rows cannot be written (${what}), then answers wait, later nothing is admitted, and no row is lost`, function* () {
      const [fake, { secret }] = [yield* Fake, yield* newKey()]
      assert.strictEqual((yield* chat(secret)).status, 200)
      const { held, late, list } = yield* Effect.acquireUseRelease(
        begin,
        () =>
          Effect.gen(function* () {
            // Each waits for its row as long as an answer may, both at the same time.
            const [list, held] = yield* Effect.all([call("/api/tags", { secret }), chat(secret)], {
              concurrency: 2
            })
            assert.strictEqual(list.status, 503)
            assert.strictEqual(held.status, 503, "an answer without its row")
            const asked = fake.requests.length
            // It is refused, and waits for its own row until the table takes rows.
            const late = yield* Effect.forkChild(chat(secret))
            yield* Effect.sleep("500 millis")
            assert.strictEqual(fake.requests.length, asked, "the backend was asked although rows are late")
            return { held, late, list }
          }),
        () => end
      )
      assert.strictEqual((yield* Fiber.join(late)).status, 503)
      const back = yield* eventually(chat(secret), ({ status }) => status === 200)
      assert.strictEqual(back.status, 200, back.text)
      for (const answer of [held, list]) {
        const row = yield* eventually(auditRow(answer.headers.get("x-request-id")), Boolean)
        assert.deepInclude(
          row,
          { status: 503, error_type: "service_unavailable" },
          "what its client was told"
        )
      }
    })
  }

  test("when intents cannot be written, then it is a 503, and the backend is not asked", function* () {
    const [fake, { secret }] = [yield* Fake, yield* newKey()]
    const asked = fake.requests.length
    const refused = yield* Effect.acquireUseRelease(
      fill("intents"),
      () => chat(secret),
      () => empty("intents")
    )
    assert.strictEqual(refused.status, 503)
    assert.strictEqual(fake.requests.length, asked)
    const back = yield* eventually(chat(secret), ({ status }) => status === 200)
    assert.strictEqual(back.status, 200, back.text)
  })
})
