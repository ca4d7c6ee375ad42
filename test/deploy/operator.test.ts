import { assert } from "@effect/vitest"
import { Schema } from "effect"
import { writeRuntime } from "../../src/infra/embedded/RuntimeFile.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { failsWith, json, succeeds, tollgate, tollgateWith } from "../cli/tollgate.ts"
import { inWorld } from "../support/testWith.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

inWorld(TestPostgres)("the operator's commands", (test) => {
  test("when a tenant is created without limits, then it gets the default ones, and one with limits keeps them", function* () {
    const Limits = Schema.Struct({ rpm: Schema.Int, tpm: Schema.Int, concurrent: Schema.Int })
    const plain = yield* tollgate("create-tenant", "--name", "plain", "--json")
    assert.deepStrictEqual(yield* json(Limits, plain), { rpm: 60, tpm: 1_000_000, concurrent: 8 })
    const own = yield* tollgate(
      ..."create-tenant --name own --rpm 1 --tpm 2147483647 --concurrent 3 --json".split(" ")
    )
    assert.deepStrictEqual(yield* json(Limits, own), { rpm: 1, tpm: 2_147_483_647, concurrent: 3 })
  })

  test("when a database is unreachable, missing or at a wrong address, then one line says which", function* () {
    const dead = { DATABASE_URL: "postgres://user:hidden-word@127.0.0.1:9/none" }
    const ran = yield* tollgateWith(dead, ["list-tenants"])
    failsWith(ran, /database cannot be reached/)
    assert.notInclude(ran.stderr, "hidden-word")
    failsWith(yield* tollgateWith({}, ["list-tenants"]), /no database: set DATABASE_URL/)
    failsWith(
      yield* tollgateWith({ DATABASE_URL: "hidden-word" }, ["list-tenants"]),
      /DATABASE_URL: got text/
    )
  })

  test("when a gateway runs in a folder, then a second terminal finds its database there, and ignores a stale file", function* () {
    const { socket } = yield* TestDatabase
    const folder = yield* temporaryFolder
    yield* writeRuntime(folder, { pid: process.pid, database: socket })
    succeeds(yield* tollgateWith({ DATA_DIR: folder }, ["create-tenant", "--name", "second terminal"]))
    yield* writeRuntime(folder, { pid: 2 ** 22 + 1, database: socket })
    failsWith(yield* tollgateWith({ DATA_DIR: folder }, ["list-tenants"]), /no database: set DATABASE_URL/)
  })
})
