/**
 * Stores that answer and cannot be used: `/readyz`, `status` and `doctor` name what is wrong within five seconds, and the gateway
 * is ready again by itself once it is mended.
 */
import { spawnSync } from "node:child_process"
import { chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { Redis } from "ioredis"
import { SqlClient } from "effect/sql"
import { Fake, layerFake } from "../support/Gateway.ts"
import { type GatewayProcess, makeGatewayProcess, readiness } from "../support/GatewayProcess.ts"
import { ask } from "../support/posting.ts"
import { copyData, nobody, testUser } from "../support/servers/PostgresCluster.ts"
import { layerPrivatePostgres, TestCluster } from "../support/TestPostgres.ts"
import { layerPrivateRedis, TestRedisServer } from "../support/TestRedis.ts"
import { atMost, eventually, makeStopwatch } from "../support/wait.ts"
import { tollgateWith } from "../cli/tollgate.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const run = (command: string, ...args: ReadonlyArray<string>): boolean =>
  spawnSync(command, args, { stdio: "ignore" }).status === 0

/** A small disk at `folder`, until the scope ends. */
const makeDisk = (folder: string, size: string) =>
  Effect.acquireRelease(
    Effect.sync(() => assert.isTrue(run("mount", "-t", "tmpfs", "-o", `size=${size}`, "tmpfs", folder))),
    () => Effect.sync(() => run("umount", "-l", folder))
  )

const canMount = (() => {
  const folder = mkdtempSync(path.join(tmpdir(), "tgm-"))
  const can = run("mount", "-t", "tmpfs", "tmpfs", folder) && run("umount", folder)
  rmSync(folder, { recursive: true })
  return can
})()

/** Takes all the room that is left on a disk. */
const fill = (folder: string) =>
  Effect.sync(() => void run("dd", "if=/dev/zero", `of=${path.join(folder, "filler")}`, "bs=4k"))
const free = (folder: string) => Effect.sync(() => rmSync(path.join(folder, "filler")))

/** Its scope is the one of the tests: a disk of its own for the data of Postgres, where the machine lets us mount one. */
const ownDisk = Effect.gen(function* () {
  const { data, start, stop } = yield* TestCluster
  yield* stop
  const aside = `${data}-aside`
  assert.isTrue(run("mkdir", "-m", "700", aside))
  yield* copyData(data, aside)
  yield* makeDisk(data, "120m")
  yield* copyData(aside, data)
  chownSync(data, nobody.uid, nobody.gid)
  rmSync(aside, { recursive: true })
  yield* start
})

interface World {
  readonly gateway: GatewayProcess
  readonly environment: Readonly<Record<string, string>>
  readonly write: (store: "database" | "redis", password: string) => void
  readonly tellRedis: (command: string, ...words: ReadonlyArray<string>) => Effect.Effect<unknown>
}
class Stores extends Context.Service<Stores, World>()("test/Stores") {}

const setPassword = Effect.fnUntraced(function* (password: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER ROLE ${sql(testUser)} PASSWORD ${sql.literal(`'${password}'`)}`
})

/** Both stores ask for a password, and both URLs are in files. */
const world = Effect.gen(function* () {
  if (canMount) yield* ownDisk
  const [cluster, redis, fake, sql] = [
    yield* TestCluster,
    yield* TestRedisServer,
    yield* Fake,
    yield* SqlClient.SqlClient
  ]
  yield* setPassword("first")
  writeFileSync(
    path.join(cluster.data, "pg_hba.conf"),
    "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
  )
  yield* sql`SELECT pg_reload_conf()`
  const folder = yield* temporaryFolder
  const fileOf = (store: string) => path.join(folder, store)
  const write: World["write"] = (store, password) =>
    writeFileSync(
      fileOf(store),
      store === "redis"
        ? `redis://:${password}@127.0.0.1:${redis.port}\n`
        : `postgres://${testUser}:${password}@127.0.0.1:${cluster.port}/postgres\n`
    )
  write("database", "first")
  write("redis", "first")
  const client = yield* Effect.acquireRelease(
    Effect.sync(() => new Redis(redis.port, { password: "first" })),
    (client) => Effect.sync(() => client.disconnect())
  )
  const environment = {
    DATABASE_URL_FILE: fileOf("database"),
    REDIS_URL_FILE: fileOf("redis"),
    BACKEND_URL: fake.url
  }
  const gateway = yield* makeGatewayProcess({
    NODE_ENV: "production",
    SHUTDOWN_DRAIN_MS: "0",
    ...environment
  })
  return Stores.of({
    gateway,
    environment,
    write,
    tellRedis: (command, ...words) => Effect.promise(() => client.call(command, ...words))
  })
})

const details = ({ url }: GatewayProcess, headers: Readonly<Record<string, string>> = {}) =>
  Effect.map(ask(`${url}/readyz`, { headers }), (answer) => ({
    ...answer,
    said: answer.headers.get("x-readiness")
  }))

interface Case<E, R> {
  readonly store: "database" | "cache"
  readonly fault: string
  readonly begin: Effect.Effect<unknown, E, R>
  readonly mend: Effect.Effect<unknown, E, R>
}

const isNamed = Effect.fnUntraced(function* <E, R>({ begin, fault, mend, store }: Case<E, R>) {
  const { environment, gateway } = yield* Stores
  assert.strictEqual(yield* readiness(gateway), 200)
  const during = Effect.gen(function* () {
    const since = makeStopwatch()
    const { said } = yield* eventually(
      details(gateway),
      ({ said }) => said?.includes(`${store}=${fault}`) === true
    )
    assert.include(said, `${store}=${fault}`)
    assert.isBelow(since(), atMost(5000))
    // Nothing of it shows to who is not on this machine.
    const outside = yield* details(gateway, { "x-forwarded-for": "192.0.2.1" })
    assert.deepStrictEqual([outside.status, outside.said], [503, null])
    assert.notInclude(outside.text, fault)
    for (const command of ["status", "doctor"]) {
      const asked = makeStopwatch()
      const { code, stdout } = yield* tollgateWith(environment, [command])
      assert.isBelow(asked(), atMost(5000), command)
      assert.match(stdout, new RegExp(`^${store} +failed +${fault}: .+(?:\\n +.*)*-> `, "m"), command)
      assert.strictEqual(code, 1)
    }
    assert.include(gateway.printed(), `"dependency":"${store}","fault":"${fault}"`)
  })
  yield* Effect.acquireUseRelease(
    begin,
    () => during,
    () => Effect.orDie(mend)
  )
  const since = makeStopwatch()
  assert.strictEqual(yield* readiness(gateway), 200)
  assert.isBelow(since(), atMost(5000))
  const { stdout } = yield* tollgateWith(environment, ["status"])
  assert.match(stdout, new RegExp(`^${store} +ok `, "m"))
})

/** The connections of the gateway to Postgres end, as when the server is restarted. */
const disconnect = sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tollgate' AND client_addr IS NOT NULL`

inWorld(
  Layer.effect(Stores, world).pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        Layer.fresh(layerFake),
        layerPrivatePostgres(),
        layerPrivateRedis(["--requirepass", "first", "--enable-protected-configs", "yes"])
      )
    )
  )
)("a gateway whose stores cannot be used", (test, it) => {
  it.effect("when Postgres is read-only, then it is named, and ready again by itself", () =>
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      isNamed({
        store: "database",
        fault: "read-only",
        begin: Effect.andThen(
          sql`ALTER SYSTEM SET default_transaction_read_only = on`,
          sql`SELECT pg_reload_conf()`
        ),
        mend: Effect.andThen(
          sql`ALTER SYSTEM RESET default_transaction_read_only`,
          sql`SELECT pg_reload_conf()`
        )
      })
    )
  )

  it.effect.skipIf(!canMount)(
    "when the disk of Postgres is full, then it is named, and ready again by itself",
    () =>
      Effect.flatMap(TestCluster, ({ data }) =>
        isNamed({ store: "database", fault: "disk full", begin: fill(data), mend: free(data) })
      )
  )

  it.effect.skipIf(!canMount)(
    "when the disk of Redis is full, then it is named, and ready again by itself",
    () =>
      Effect.gen(function* () {
        const [{ tellRedis }, folder] = [yield* Stores, yield* temporaryFolder]
        yield* makeDisk(folder, "64k")
        yield* tellRedis("CONFIG", "SET", "dir", folder)
        yield* tellRedis("CONFIG", "SET", "save", "3600 1")
        yield* isNamed({
          store: "cache",
          fault: "disk full",
          begin: Effect.andThen(fill(folder), tellRedis("BGSAVE")),
          mend: Effect.andThen(free(folder), tellRedis("BGSAVE"))
        })
        yield* tellRedis("CONFIG", "SET", "save", "")
        yield* tellRedis("CONFIG", "SET", "dir", tmpdir())
      })
  )

  it.effect("when Redis is full, then it is named, and ready again by itself", () =>
    Effect.flatMap(Stores, ({ tellRedis }) =>
      isNamed({
        store: "cache",
        fault: "memory full",
        begin: tellRedis("CONFIG", "SET", "maxmemory", "1"),
        mend: tellRedis("CONFIG", "SET", "maxmemory", "0")
      })
    )
  )

  test("when the password of Postgres is another one, then it is named, and the one in the file is used", function* () {
    const { write } = yield* Stores
    yield* isNamed({
      store: "database",
      fault: "password refused",
      begin: Effect.andThen(setPassword("sec@nd/"), disconnect),
      mend: Effect.sync(() => write("database", encodeURIComponent("sec@nd/")))
    })
  })

  test("when the password of Redis is another one, then it is named, and the one in the file is used", function* () {
    const { tellRedis, write } = yield* Stores
    yield* isNamed({
      store: "cache",
      fault: "password refused",
      begin: Effect.andThen(
        tellRedis("CONFIG", "SET", "requirepass", "sec@nd/"),
        tellRedis("CLIENT", "KILL", "TYPE", "normal")
      ),
      mend: Effect.sync(() => write("redis", encodeURIComponent("sec@nd/")))
    })
  })

  test("when the files cannot be used or name another server, then the last good ones are, and the log says so", function* () {
    const { environment, gateway, tellRedis } = yield* Stores
    assert.strictEqual(yield* readiness(gateway), 200)
    writeFileSync(environment["REDIS_URL_FILE"] ?? "", "redis://:sec%40nd%2F@127.0.0.1:1\n")
    rmSync(environment["DATABASE_URL_FILE"] ?? "")
    yield* disconnect
    yield* tellRedis("CLIENT", "KILL", "TYPE", "normal")
    const warned = (fault: string) =>
      new RegExp(`"file with the url of a store not used".*"fault":"${fault}"`)
    yield* eventually(
      Effect.sync(gateway.printed),
      (text) => warned("it cannot be read").test(text) && warned("it is no URL of the same store").test(text)
    )
    assert.match(gateway.printed(), warned("it cannot be read"))
    assert.match(gateway.printed(), warned("it is no URL of the same store"))
    assert.strictEqual(yield* readiness(gateway), 200)
    for (const secret of ["sec%40nd", "sec@nd", ":first"]) assert.notInclude(gateway.printed(), secret)
  })
})
