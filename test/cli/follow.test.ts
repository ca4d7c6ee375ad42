/** `requests --follow` as a process, also while its database goes away and comes back. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted, Schema } from "effect"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { inject } from "vitest"
import { eventually, generous } from "../support/Gateway.ts"
import { makePostgresClusterWith } from "../support/servers/PostgresCluster.ts"
import { insert } from "./auditRows.ts"
import { failsWith, start, tollgateWith } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"

const test = testWith(it.live)

test("when the database restarts, freezes or is away for seconds, then a list that grows goes on, and has each row once", function* () {
  // A killed server loses none of its commits.
  const cluster = yield* makePostgresClusterWith(
    { synchronous_commit: "on" },
    { from: inject("postgres").prepared }
  )
  const database = layerPostgres({ url: cluster.socket("postgres"), maxConnections: 2 })
  const admin = Layer.provideMerge(layerRegistry({ defaults: generous }), database)
  const { key } = yield* Effect.gen(function* () {
    const registry = yield* Registry
    yield* registry.createTenant({ name: "acme", allowAllModels: true })
    return yield* registry.createKey({ tenant: "acme", name: "k" })
  }).pipe(Effect.provide(admin))
  const written: Array<string> = []
  const write = (count: number) =>
    insert(key.prefix, { count }).pipe(
      Effect.provide(Layer.fresh(database)),
      Effect.map((rows) => void written.push(...rows.map(({ id }) => id)))
    )
  yield* write(1)
  assert.lengthOf(written, 1)
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      start({ DATABASE_URL: Redacted.value(cluster.url("postgres")) }, ["requests", "--follow", "--json"])
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )
  let [printed, complaints] = ["", ""]
  child.stdout.setEncoding("utf8").on("data", (text: string) => (printed += text))
  child.stderr.setEncoding("utf8").on("data", (text: string) => (complaints += text))
  const Line = Schema.fromJsonString(Schema.Struct({ request_id: Schema.String }))
  const shownAll = Effect.gen(function* () {
    yield* eventually(
      Effect.sync(() => printed.split("\n").length - 1),
      (count) => count >= written.length
    )
    const rows = yield* Effect.forEach(printed.trimEnd().split("\n"), (line) =>
      Schema.decodeEffect(Line)(line)
    )
    assert.deepStrictEqual(
      rows.map(({ request_id }) => request_id).toSorted(),
      written.toSorted(),
      complaints
    )
  })
  const exited = new Promise<number | null>((resolve) => child.on("close", resolve))
  const said = (times: number) =>
    eventually(
      Effect.sync(() => complaints.split("\n").length - 1),
      (count) => count >= times
    )
  yield* shownAll

  yield* cluster.stop
  yield* said(1)
  yield* cluster.start
  yield* write(3)
  yield* shownAll

  // Rows that were written just before the end are read after it.
  yield* write(2)
  yield* cluster.kill
  yield* cluster.start
  yield* write(2)
  yield* shownAll

  // A statement that is under way when the server freezes gets its answer, or is given up.
  yield* cluster.pause
  yield* Effect.sleep("3 seconds")
  yield* cluster.resume
  yield* write(1)
  yield* shownAll

  assert.isNull(child.exitCode)
  child.kill("SIGINT")
  assert.strictEqual(yield* Effect.promise(() => exited), 130)
  const messages = yield* Effect.forEach(complaints.trimEnd().split("\n"), (line) =>
    Schema.decodeEffect(
      Schema.fromJsonString(Schema.Struct({ error: Schema.Struct({ message: Schema.String }) }))
    )(line)
  )
  assert.isAtMost(messages.length, 3)
  for (const { error } of messages) assert.match(error.message, /^the database .*; trying again$/)
})

test("when a list that grows cannot begin, then it ends with the reason instead of waiting", function* () {
  const DATABASE_URL = "postgres://127.0.0.1:1/none"
  failsWith(yield* tollgateWith({ DATABASE_URL }, ["requests", "--follow"]), /cannot be reached/)
})
