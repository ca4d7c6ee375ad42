/**
 * `npm run sizing -- --people 500`: one gateway with the traffic of the busiest hour of so many people (docs/sizing.md), in real
 * time, and what it costs: CPU of the gateway, of Postgres and of Redis, memory, bytes of rows and counters.
 *
 * Arguments: `--people 100,500 --seconds 30`; `--editors` for people whose editors complete while they type; `--images` for
 * eight bodies of 20 MB at a time, with `--memory` as MEMORY_MAX_BYTES (default: 1 GiB); `--users 10000` for so many
 * end users of one key with limits of their own, beside a key without.
 */
import { spawn, spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { Data, Effect, Fiber, Redacted, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { Redis } from "ioredis"
import { layerPostgres } from "../src/infra/Postgres.ts"
import { fake, makeFakeBackend } from "../test/support/FakeBackend.ts"
import { cpuSecondsOf, processState } from "../test/support/invariants/processState.ts"
import { freePort } from "../test/support/servers/processes.ts"
import { durable, makePostgresClusterWith } from "../test/support/servers/PostgresCluster.ts"
import { findRedis } from "../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../test/support/servers/RedisServer.ts"

const { values: given } = parseArgs({
  options: {
    people: { type: "string", default: "100,500,2000" },
    seconds: { type: "string", default: "30" },
    editors: { type: "boolean", default: false },
    images: { type: "boolean", default: false },
    memory: { type: "string", default: "1073741824" },
    users: { type: "string", default: "0" }
  }
})
const seconds = Number(given.seconds)

class Failed extends Data.TaggedError("Failed")<{ readonly message: string }> {}

const root = fileURLToPath(new URL("..", import.meta.url))
const say = (line: string) => Effect.sync(() => void process.stdout.write(`${line}\n`))

/** Busiest hour: one person in five sends a request a minute; an editor sends ten short ones. */
const perSecond = (people: number) => (people / 5 / 60) * (given.editors ? 10 : 1)
const users = Number(given.users)
const [frames, gapMs] = users > 0 ? [20, 0] : given.editors ? [20, 40] : [400, 40]

const cpuOf = (pids: ReadonlyArray<number>): number => pids.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0)

const listening = (port: number): ReadonlyArray<number> =>
  spawnSync("bash", ["-c", `ss -Hltnp 'sport = :${port}' | grep -o 'pid=[0-9]*' | cut -d= -f2 | sort -u`], {
    encoding: "utf8"
  })
    .stdout.trim()
    .split("\n")
    .filter((line) => line !== "")
    .map(Number)

const childrenOf = (pid: number): ReadonlyArray<number> =>
  spawnSync("pgrep", ["-P", String(pid)], { encoding: "utf8" })
    .stdout.trim()
    .split("\n")
    .filter((line) => line !== "")
    .map(Number)

const measure = Effect.fnUntraced(function* (people: number) {
  const cluster = yield* makePostgresClusterWith(durable)
  const redis = yield* makeRedisServer(findRedis())
  const backend = yield* makeFakeBackend
  backend.setModels(["m:latest"])
  backend.always({
    does: "stream",
    lines: [
      ...Array.from({ length: frames }, (_, i) => fake.chat(` ${i}`)),
      fake.done("chat", { prompt_eval_count: 200, eval_count: frames })
    ],
    gapMs
  })
  const port = yield* freePort
  const env = {
    PATH: process.env["PATH"],
    NODE_ENV: "production",
    DATABASE_URL: Redacted.value(cluster.url("postgres")),
    REDIS_URL: redis.url,
    BACKEND_URL: backend.url,
    PORT: String(port),
    LOG_LEVEL: "error",
    ...(given.images ? { MAX_REQUEST_BODY_BYTES: "20971520", MEMORY_MAX_BYTES: given.memory } : {})
  }
  const tollgate = (...args: ReadonlyArray<string>) => {
    const ran = spawnSync(process.execPath, ["cli/tollgate.js", ...args], {
      cwd: root,
      env,
      encoding: "utf8"
    })
    return ran.status === 0 ? Effect.succeed(ran.stdout.trim()) : new Failed({ message: ran.stderr })
  }
  yield* tollgate("migrate")
  const limits = ["--rpm", "100000", "--tpm", "1000000000", "--concurrent", "1000", "--allow-all-models"]
  yield* tollgate("create-tenant", "--name", "team", ...limits)
  // Not a key for each person: making one takes a second of a process.
  const secrets: Array<string> = []
  for (let i = 0; i < 10; i += 1) {
    secrets.push(yield* tollgate("create-key", "--tenant", "team", "--name", `k${i}`))
  }
  const gateway = yield* Effect.acquireRelease(
    Effect.sync(() => spawn(process.execPath, ["src/main.ts"], { cwd: root, env, stdio: "ignore" })),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )
  const url = `http://127.0.0.1:${port}`
  yield* Effect.tryPromise(() => fetch(`${url}/readyz`).then((answer) => answer.ok)).pipe(
    Effect.filterOrFail((ok) => ok),
    Effect.retry({ schedule: Schedule.spaced("100 millis"), times: 200 })
  )
  let [sent, failed, turn] = [0, 0, 0]
  const chat = (body: string, secret?: string, user?: string) =>
    Effect.promise(async () => {
      sent += 1
      turn += 1
      const answer = await fetch(`${url}/api/chat`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${secret ?? secrets[turn % secrets.length]}`,
          "content-type": "application/json",
          ...(user === undefined ? {} : { "x-user": user })
        },
        body
      }).catch(() => undefined)
      const text = await answer?.text().catch(() => "")
      if (!text?.includes('"done":true')) failed += 1
    })
  const question = JSON.stringify({ model: "m", messages: [{ role: "user", content: "word ".repeat(150) }] })
  const pid = gateway.pid ?? 0
  const postgres = listening(cluster.port)
  const stores = { postgres: postgres[0] ?? 0, redis: listening(redis.port)[0] ?? 0 }
  const cpu = () => ({
    gateway: cpuOf([pid]),
    postgres: cpuOf([stores.postgres, ...childrenOf(stores.postgres)]),
    redis: cpuOf([stores.redis])
  })

  if (given.images) {
    // As large as a body with an image; the bytes of text cost more memory than those of base64.
    const body = JSON.stringify({
      model: "m",
      messages: [{ role: "user", content: "word ".repeat(4_190_000) }]
    })
    yield* say(`idle ${Math.round(processState(pid)?.rssMiB ?? 0)} MiB`)
    for (let round = 0; round < 3; round += 1) {
      yield* Effect.forEach(Array.from({ length: 8 }), () => chat(body), { concurrency: "unbounded" })
    }
    return yield* say(
      `eight bodies of 20 MB at a time, three times: at most ${Math.round(processState(pid)?.peakMiB ?? 0)} MiB; ${sent} sent, ${failed} refused`
    )
  }

  if (users > 0) {
    const of = (prefix: string, ...args: ReadonlyArray<string>) => tollgate(...args, "--key", prefix)
    const [plain = "", shared = ""] = secrets
    for (const secret of [plain, shared]) {
      const prefix = secret.slice(0, 12)
      yield* of(prefix, "set-budget", "--daily", "1G")
      yield* of(prefix, "set-end-user", "--header", "x-user")
    }
    yield* of(shared.slice(0, 12), "set-limits", "--each-user", "--rpm", "1000")
    yield* of(shared.slice(0, 12), "set-budget", "--each-user", "--daily", "1G")
    yield* Effect.sleep("3 seconds")
    const client = new Redis(redis.url)
    const memory = Effect.map(
      Effect.promise(() => client.info("memory")),
      (text) => Number(/used_memory:(\d+)/.exec(text)?.[1])
    )
    const send = (secret: string, from: number, count: number) =>
      Effect.forEach(
        Array.from({ length: count }, (_, n) => `user${(from + n) % users}@example.com`),
        (user) => chat(question, secret, user),
        { concurrency: 32, discard: true }
      )
    // The first request of each user loads its counters. Then rounds of both keys take turns, so that both meet the same machine.
    const before = yield* memory
    yield* send(plain, 0, users / 5)
    const middle = yield* memory
    yield* send(shared, 0, users)
    const after = yield* memory
    const spent = new Map<string, Array<ReturnType<typeof cpu>>>()
    const each = 500
    for (let round = 0; round < 7; round += 1) {
      for (const [name, secret] of [
        ["without users", plain],
        ["with users", shared]
      ] as const) {
        const then = cpu()
        yield* send(secret, round * each, each)
        const now = cpu()
        spent.set(name, [
          ...(spent.get(name) ?? []),
          {
            gateway: now.gateway - then.gateway,
            postgres: now.postgres - then.postgres,
            redis: now.redis - then.redis
          }
        ])
      }
    }
    client.disconnect()
    for (const [name, rounds] of spent) {
      const median = (of: keyof ReturnType<typeof cpu>) =>
        ((rounds.map((round) => round[of]).toSorted((one, other) => one - other)[3] ?? 0) / each) * 1e6
      yield* say(
        `${name}: ${median("gateway").toFixed(0)} us of CPU a request in the gateway, ${median("postgres").toFixed(0)} in Postgres, ${median("redis").toFixed(0)} in Redis`
      )
    }
    return yield* say(
      `Redis: ${((after - middle - 5 * (middle - before)) / users).toFixed(0)} bytes a user; ${sent} sent, ${failed} failed`
    )
  }

  const rate = perSecond(people)
  // Until as many streams are open as stay open.
  const warmS = (frames * gapMs) / 1000 + 2
  const clients: Array<Fiber.Fiber<void>> = []
  const began = performance.now()
  let before = cpu()
  let measuredAt = 0
  let next = 0
  for (;;) {
    const now = (performance.now() - began) / 1000
    if (measuredAt === 0 && now > warmS) {
      before = cpu()
      measuredAt = now
    }
    if (now > warmS + seconds) break
    while (next <= now) {
      clients.push(yield* Effect.forkChild(chat(question)))
      next += 1 / rate
    }
    yield* Effect.sleep("5 millis")
  }
  const after = cpu()
  const took = (performance.now() - began) / 1000 - measuredAt
  for (const one of clients) yield* Fiber.join(one)
  const rows = yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [size] = yield* sql<{ rows: number; bytes: number }>`
      SELECT count(*)::int AS rows, coalesce(sum(pg_total_relation_size(oid)), 0)::int AS bytes
      FROM pg_class, audit_log WHERE relname = 'audit_log' GROUP BY oid LIMIT 1`
    return size
  }).pipe(Effect.provide(layerPostgres({ url: cluster.url("postgres"), maxConnections: 1 })))
  const client = new Redis(redis.url)
  const memory = /used_memory:(\d+)/.exec(yield* Effect.promise(() => client.info("memory")))?.[1]
  client.disconnect()
  const share = (name: keyof typeof after) => `${(((after[name] - before[name]) / took) * 100).toFixed(1)} %`
  yield* say(
    [
      `${people} people${given.editors ? " with editors" : ""}: ${rate.toFixed(2)} requests a second, ${((frames * gapMs * rate) / 1000).toFixed(0)} streams`,
      `gateway ${share("gateway")} of a core, ${Math.round(processState(pid)?.peakMiB ?? 0)} MiB`,
      `Postgres ${share("postgres")}`,
      `Redis ${share("redis")}, ${(Number(memory) / 1_048_576).toFixed(1)} MiB`,
      `${sent} sent, ${failed} failed, ${rows?.rows} rows`
    ].join("; ")
  )
  if (failed > 0) return yield* new Failed({ message: `${failed} answers were not whole` })
})

process.exitCode = await Effect.runPromise(
  Effect.forEach(
    given.images || users > 0 ? [0] : given.people.split(",").map(Number),
    (people) => Effect.scoped(measure(people)),
    { discard: true }
  ).pipe(
    Effect.timeout("9 minutes"),
    Effect.as(0),
    Effect.catchCause((cause) => Effect.as(say(`FAILED ${cause}`), 1))
  )
)
