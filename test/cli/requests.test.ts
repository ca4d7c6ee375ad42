/** `requests` and `show-request`. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { makeFollower } from "../../cli/commands/requests.ts"
import { Records } from "../../src/admin/records/Records.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { TestDatabase } from "../support/TestPostgres.ts"
import { insert, open } from "./auditRows.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { failsWith, json, succeeds, tollgate } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const World = Layer.provideMerge(Records.layer, Admin)

/** Tenants `acme` and `umbra` with a key each; returns the prefixes. */
const setUp = Effect.gen(function* () {
  const made = []
  for (const tenant of ["acme", "umbra"]) {
    succeeds(yield* tollgateHere("create-tenant", "--name", tenant))
    const key = yield* tollgateHere("create-key", "--tenant", tenant, "--name", "k")
    made.push(key.stdout.slice(0, 12))
  }
  return { acme: made[0] ?? "", umbra: made[1] ?? "" }
})

const Rows = Schema.Array(
  Schema.Struct({
    request_id: Schema.String,
    key: Schema.NullOr(Schema.String),
    tenant: Schema.NullOr(Schema.String),
    status: Schema.Finite,
    tokens_in: Schema.Finite,
    corrected: Schema.Boolean
  })
)

const listed = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  const ran = yield* tollgateHere("requests", ...args, "--json")
  succeeds(ran)
  return yield* json(Rows, ran)
})

const test = testWith(it.effect, World)

test("when requests are listed, then they are the newest that match, the newest last, as the client saw them", function* () {
  const { acme, umbra } = yield* setUp
  yield* insert(acme, { count: 60 })
  yield* insert(acme, { count: 3, status: 502 })
  yield* insert(umbra, { count: 5, status: 429 })
  yield* insert(umbra, { at: "now() - interval '3 days'" })
  assert.lengthOf(yield* listed(), 50)
  assert.lengthOf(yield* listed("--limit", "1000"), 68)
  assert.lengthOf(yield* listed("--limit", "1000", "--since", "1w"), 69)
  // Within a millisecond the rest of an id is random.
  const times = (yield* listed("--limit", "1000")).map(({ request_id }) => request_id.slice(0, 13))
  assert.deepStrictEqual(times, times.toSorted())
  assert.deepStrictEqual(
    (yield* listed("--tenant", "umbra")).map(({ key, tenant }) => [key, tenant]),
    Array.from({ length: 5 }, () => [umbra, "umbra"])
  )
  assert.lengthOf(yield* listed("--key", acme, "--limit", "1000"), 63)
  assert.lengthOf(yield* listed("--status", "502"), 3)
  assert.lengthOf(yield* listed("--status", "5xx", "--key", umbra), 0)
  assert.lengthOf(yield* listed("--status", "4xx", "--tenant", "umbra"), 5)

  yield* sql`INSERT INTO audit_corrections (request_id, tenant_id, key_id, admitted_at, tokens_in, tokens_out, status)
        SELECT request_id, tenant_id, key_id, admitted_at, 10, 0, 200 FROM audit_log WHERE status = 502 LIMIT 1`
  assert.lengthOf(yield* listed("--status", "502"), 2)
  const corrected = (yield* listed("--limit", "1000")).find((row) => row.corrected)
  assert.deepInclude(corrected, { status: 200, tokens_in: 11 })
  const text = (yield* tollgateHere("requests", "--limit", "1000")).stdout
  assert.match(text, /^ARRIVED +STATUS +TENANT +KEY +NAME +USER +MODEL/)
  assert.match(text, /\n\n68 requests, \d+ tokens in, \d+ tokens out\n[-0-9: ]+ UTC to [-0-9: ]+ UTC\n$/)
  assert.lengthOf(yield* listed("--model", "m:1", "--status", "5xx"), 2)
  assert.lengthOf(yield* listed("--model", "m:2"), 0)
  assert.lengthOf(yield* listed("--user", "nobody"), 0)
  assert.lengthOf(yield* listed("--since", "73h", "--until", "71h"), 1)
  assert.match(text, /\n\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC +200\* +acme /)
  assert.match(
    (yield* tollgateHere("requests", "--status", "100")).stdout,
    /^no requests, 2.* UTC to 2.* UTC\n$/
  )
})

test("when rows are committed late or out of order, then the list that grows has each once", function* () {
  const { acme, umbra } = yield* setUp
  const next = yield* makeFollower(yield* Records, { key: acme })
  const follow = Effect.map(next(), (rows) => rows.map(({ request_id }) => request_id))
  yield* insert(acme)
  assert.lengthOf(yield* follow, 1)
  assert.deepStrictEqual(yield* follow, [])

  // Stamped now, visible when it is committed.
  const other = Context.get(
    yield* Layer.build(Layer.fresh(layerPostgres({ url: (yield* TestDatabase).socket, maxConnections: 1 }))),
    SqlClient.SqlClient
  )
  yield* other`BEGIN`
  const [late] = yield* Effect.provideService(
    insert(acme, { at: "now() - interval '1 hour'", admitted: false }),
    SqlClient.SqlClient,
    other
  )
  const early = yield* insert(acme)
  assert.deepStrictEqual(
    yield* follow,
    early.map(({ id }) => id)
  )
  yield* other`COMMIT`
  assert.deepStrictEqual(yield* follow, [late?.id])
  assert.deepStrictEqual(yield* follow, [])
  yield* insert(umbra)
  const more = yield* insert(acme, { count: 20 })
  assert.sameMembers(
    yield* follow,
    more.map(({ id }) => id)
  )
  assert.deepStrictEqual(yield* follow, [])
})

test("when many rows were written at one moment, then none is lost or repeated", function* () {
  const { acme } = yield* setUp
  const records = yield* Records
  const { now } = yield* records.writtenSince({}, undefined)
  const ids = (yield* insert(acme, { count: 25_000 })).map(({ id }) => id)
  const found = yield* records.writtenSince({}, now - 1000)
  assert.deepStrictEqual(found.rows.map(({ request_id }) => request_id).toSorted(), ids.toSorted())
})

const Shown = Schema.Struct({
  requests: Schema.Array(
    Schema.Struct({
      request_id: Schema.String,
      state: Schema.String,
      status: Schema.NullOr(Schema.Finite),
      tokens_in: Schema.Finite,
      row: Schema.NullOr(Schema.Struct({ status: Schema.Finite })),
      correction: Schema.NullOr(Schema.Struct({ status: Schema.Finite })),
      open: Schema.NullOr(Schema.Struct({ held: Schema.Finite, key: Schema.String }))
    })
  ),
  tallied: Schema.Array(Schema.Struct({ request_id: Schema.String, repeats: Schema.Finite }))
})

const shown = Effect.fnUntraced(function* (id: string) {
  const ran = yield* tollgateHere("show-request", id, "--json")
  assert.strictEqual(ran.code, 0, ran.stderr)
  return yield* json(Shown, ran)
})

test("when a request is shown, then all that the database has of it is there, by either id", function* () {
  const { acme } = yield* setUp
  const [row] = yield* insert(acme, { status: 500, clientRequestId: "my-id" })
  const id = row?.id ?? ""
  yield* sql`INSERT INTO audit_corrections (request_id, tenant_id, key_id, admitted_at, tokens_in, tokens_out, status)
        SELECT request_id, tenant_id, key_id, admitted_at, 10, 0, 200 FROM audit_log WHERE request_id = ${id}::text::uuid`
  const expected = {
    request_id: id,
    state: "ended",
    status: 200,
    tokens_in: 11,
    row: { status: 500 },
    correction: { status: 200 },
    open: null
  }
  assert.deepStrictEqual((yield* shown(id)).requests, [expected])
  assert.deepStrictEqual((yield* shown(id.toUpperCase())).requests, [expected])
  assert.deepStrictEqual((yield* shown("my-id")).requests, [expected])

  const running = (yield* open(acme))[0]?.id ?? ""
  assert.deepInclude((yield* shown(running)).requests[0], { state: "open", open: { held: 7, key: acme } })
  assert.match((yield* tollgateHere("show-request", running)).stdout, /open: it runs[^]*held +7/)
  assert.match(
    (yield* tollgate("show-request", id)).stdout,
    /as it was written[^]*correction[^]*tokens in +10/
  )

  // A refusal that another row counts.
  const [tallied] = yield* insert(acme, { status: 429, repeats: 40 })
  const counted = yield* sql<{ readonly id: string }>`
        SELECT (left(first_request_id(request_id_time(${tallied?.id ?? ""}::text::uuid) + interval '500 milliseconds')::text, 14)
          || '7fff-8000-000000000001')::uuid::text AS id`
  assert.deepStrictEqual((yield* shown(counted[0]?.id ?? "")).tallied, [
    { request_id: tallied?.id ?? "", repeats: 40 }
  ])
  failsWith(yield* tollgateHere("show-request", "nobody"), /no request "nobody"; by the client's own id/)
  failsWith(yield* tollgateHere("show-request", "two words"), /must be 1 to 64 characters/)
})
