/**
 * A machine or a cluster without an engine: the image is built by the Dockerfile's own lines, its containers are processes, and
 * names of services lead to servers on loopback.
 *
 * *Details* Not in the times: what an engine downloads (base image, Postgres, Redis, the model server and a model).
 */
import { chmodSync, cpSync, mkdirSync, symlinkSync } from "node:fs"
import * as path from "node:path"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { CheckoutFailed } from "../../test/support/Checkout.ts"
import { fake, makeFakeBackend } from "../../test/support/FakeBackend.ts"
import { exitOf, launch, readImage, run, type Variables } from "../../test/support/Image.ts"
import { durable, makePostgresClusterWith } from "../../test/support/servers/PostgresCluster.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../../test/support/servers/RedisServer.ts"
import { type } from "./steps.ts"
import { temporaryFolder } from "../../test/support/temporaryFolder.ts"
import { posting } from "../../test/support/posting.ts"

/** What `docker build` does with this clone, in a folder that is the image's /app. */
export const buildImage = Effect.fnUntraced(function* (clone: string) {
  const image = readImage(clone)
  const folder = yield* temporaryFolder
  chmodSync(folder, 0o755)
  const cache = yield* temporaryFolder
  /** Copies what the image has, after the packages are installed. */
  const fill = Effect.fnUntraced(function* (stage: string, install: string) {
    for (const name of ["package.json", "package-lock.json"])
      cpSync(path.join(clone, name), path.join(stage, name))
    yield* type(stage, install, { npm_config_cache: cache })
    for (const name of image.copied)
      cpSync(path.join(clone, name), path.join(stage, name), { recursive: true })
  })
  const builder = yield* temporaryFolder
  yield* fill(builder, image.installAll)
  yield* type(builder, image.build, {})
  yield* fill(folder, image.install)
  cpSync(path.join(builder, "bundle"), path.join(folder, "bundle"), { recursive: true })
  mkdirSync(path.join(folder, "bin"))
  symlinkSync(path.join(folder, "cli/tollgate.js"), path.join(folder, "bin/tollgate"))
  return {
    image,
    start: (command: ReadonlyArray<string>, env: Variables) => launch(image, folder, command, env),
    /** Runs a command to its end, which must be good, and returns what it prints. */
    run: (command: ReadonlyArray<string>, env: Variables) =>
      run(image, folder, command, env).pipe(
        Effect.filterOrFail(
          ({ code }) => code === 0,
          ({ err, out }) => new CheckoutFailed({ message: `${command.join(" ")}\n${out}${err}` })
        ),
        Effect.map(({ out }) => out)
      ),
    exitOf
  }
})

/** Postgres, Redis and a model server with `llama3.2`, on loopback. */
export const makeServers = Effect.fnUntraced(function* (redisWords: ReadonlyArray<string> = []) {
  const postgres = yield* makePostgresClusterWith(durable)
  yield* Effect.flatMap(SqlClient.SqlClient, (sql) => sql`CREATE DATABASE tollgate`).pipe(
    Effect.provide(layerPostgres({ url: postgres.socket("postgres"), maxConnections: 1 }))
  )
  const redis = yield* makeRedisServer(findRedis(), redisWords)
  const model = yield* makeFakeBackend
  model.setModels(["llama3.2:latest"])
  model.always({
    does: "stream",
    lines: [...Array.from({ length: 20 }, (_, i) => fake.chat(` ${i}`)), fake.done()],
    gapMs: 40
  })
  return {
    databaseUrl: Redacted.value(postgres.url("tollgate")),
    postgres: `127.0.0.1:${postgres.port}`,
    redis: `127.0.0.1:${redis.port}`,
    redisUrl: redis.url,
    model: new URL(model.url).host
  }
})

/** The first question, as the README asks it, until its whole answer is there. */
export const ask = (url: string, secret: string) =>
  Effect.tryPromise({
    try: async () => {
      const body = { model: "llama3.2", messages: [{ role: "user", content: "Hello" }] }
      const answer = await fetch(`${url}/api/chat`, posting(secret, body))
      return { status: answer.status, text: await answer.text() }
    },
    catch: (cause) => new CheckoutFailed({ message: String(cause) })
  }).pipe(
    Effect.filterOrFail(
      ({ status, text }) => status === 200 && text.includes('"done":true'),
      ({ status, text }) => new CheckoutFailed({ message: `the first answer: ${status} ${text}` })
    )
  )
