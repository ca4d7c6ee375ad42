/**
 * An upgrade can be taken back: the oldest version that the schema admits starts on today's schema and serves, beside today's
 * version. That is the code of the commit before the first migration after `minimumVersion` was added.
 */
import { spawnSync } from "node:child_process"
import { existsSync, symlinkSync } from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer, Redacted, Result, Schema } from "effect"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { assertSchema, knownVersion, migrations, minimumVersion } from "../../src/infra/Migrations.ts"
import { root } from "../support/Checkout.ts"
import { generous, hello, layerFake } from "../support/Gateway.ts"
import { makeGatewayOnStores, post, readiness } from "../support/GatewayProcess.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { layerTestRedis } from "../support/TestRedis.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { sql } from "../support/sql.ts"

const git = (...words: ReadonlyArray<string>) =>
  spawnSync("git", words, { cwd: root, encoding: "utf8", maxBuffer: 2 ** 28 })

/** The commit, or why there is none. */
const findPrevious = (): Result.Result<string, string> => {
  if (!existsSync(path.join(root, ".git"))) return Result.fail("this is no git checkout")
  const next = Object.keys(migrations).find((name) => Number(name.slice(0, 4)) === minimumVersion + 1)
  if (next === undefined) return Result.fail("there is no migration after the oldest version that may run")
  if (git("rev-parse", "--is-shallow-repository").stdout.trim() === "true") {
    return Result.fail("the history of this checkout is cut off: git fetch --unshallow")
  }
  const added = git("log", "--no-renames", "--diff-filter=A", "--format=%H", "--", `migrations/${next}.ts`)
  const commit = added.stdout.trim().split("\n").at(-1) ?? ""
  return Result.succeed(commit === "" ? "HEAD" : `${commit}^`)
}

const previous = findPrevious()
const skipped = Result.isFailure(previous) ? previous.failure : ""
// A test that was not run says so.
if (skipped !== "") process.stderr.write(`rollback.test.ts: not run, ${skipped}\n`)

/** The tree of `commit`, with the packages that are installed now. */
const checkoutOf = Effect.fnUntraced(function* (commit: string) {
  const folder = yield* temporaryFolder
  const tar = `git -C '${root}' archive ${commit} build src cli migrations package.json | tar -x -C '${folder}'`
  const { status, stderr } = spawnSync("bash", ["-o", "pipefail", "-c", tar], { encoding: "utf8" })
  assert.strictEqual(status, 0, stderr)
  symlinkSync(path.join(root, "node_modules"), path.join(folder, "node_modules"))
  return folder
})

const world = Layer.mergeAll(
  Layer.provideMerge(layerRegistry({ defaults: generous }), TestPostgres),
  layerTestRedis,
  layerFake
)

const Rows = Schema.Array(Schema.Struct({ requests: Schema.Int }))

layer(world, { excludeTestServices: true })(`the version before migration ${minimumVersion + 1}`, (it) => {
  it.effect.skipIf(skipped !== "")(
    "when the schema is today's, then the previous version starts, serves, audits and administers beside today's",
    () =>
      Effect.gen(function* () {
        const folder = yield* checkoutOf(Result.getOrThrow(previous))
        const [database, registry] = [yield* TestDatabase, yield* Registry]
        yield* assertSchema
        const oldCommand = (...words: ReadonlyArray<string>) => {
          const ran = spawnSync(process.execPath, ["cli/tollgate.js", ...words], {
            cwd: folder,
            encoding: "utf8",
            env: { PATH: process.env["PATH"], DATABASE_URL: Redacted.value(database.url) }
          })
          assert.strictEqual(ran.status, 0, `${words.join(" ")}: ${ran.stderr}`)
          return ran.stdout
        }

        yield* registry.createTenant({ name: "today", allowAllModels: true })
        const { key, secret } = yield* registry.createKey({ tenant: "today", name: "k" })
        oldCommand("create-tenant", "--name", "before", "--allow-all-models")
        const oldSecret = oldCommand("create-key", "--tenant", "before", "--name", "k").trim()
        oldCommand("set-budget", "--key", key.prefix, "--daily", "100000")
        assert.include(oldCommand("migrate", "--plan"), `newer than this tollgate (${minimumVersion})`)
        assert.include(oldCommand("migrate"), "up to date")

        const now = yield* makeGatewayOnStores()
        const before = yield* makeGatewayOnStores({}, path.join(folder, "src/main.ts"))
        for (const { printed, url } of [now, before]) {
          assert.strictEqual(yield* readiness({ url }), 200, printed())
          for (const one of [secret, oldSecret]) {
            const { status, text } = yield* post({ url }, one, hello())
            assert.match(`${status} ${text}`, /^200 .*"done":true/s, printed())
          }
        }
        const ledger = yield* Effect.flatMap(
          sql`SELECT requests::int FROM ledger ORDER BY 1`,
          Schema.decodeUnknownEffect(Rows)
        )
        assert.deepStrictEqual(ledger, [{ requests: 2 }, { requests: 2 }])
        assert.strictEqual((yield* sql`SELECT 1 AS one FROM audit_log WHERE status = 200`).length, 4)
        assert.strictEqual(yield* before.stop, 0)
        assert.strictEqual(yield* now.stop, 0)
      }).pipe(Effect.scoped)
  )

  it("when it is read, then it is older than today's if migrations were added since", () => {
    assert.isAtMost(minimumVersion, knownVersion)
  })
})
