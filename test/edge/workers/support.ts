/** A gateway with two workers as its own process, with real stores. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Redacted } from "effect"
import { Agent, request } from "undici"
import { layerPostgres as layerRegistry } from "../../../src/admin/postgres.ts"
import { Registry } from "../../../src/admin/Registry.ts"
import { layerRedis as layerRedisMeter } from "../../../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis } from "../../../src/infra/Redis.ts"
import { fake } from "../../support/FakeBackend.ts"
import { eventually, Fake, hello, layerFake } from "../../support/Gateway.ts"
import { type GatewayProcess, makeGatewayProcess } from "../../support/GatewayProcess.ts"
import { TestDatabase, TestPostgres } from "../../support/TestPostgres.ts"
import { layerTestRedis, TestRedis } from "../../support/TestRedis.ts"

export const world = Layer.mergeAll(
  layerRegistry({ namespace: "tg_", defaults: { rpm: 1_000_000, tpm: 1_000_000_000, concurrent: 1000 } }),
  Layer.unwrap(
    Effect.map(TestRedis, ({ url }) =>
      layerRedisMeter({ leaseS: 30 }).pipe(Layer.provide(layerRedis({ url: Redacted.make(url) })))
    )
  ),
  layerFake
).pipe(Layer.provideMerge(TestPostgres), Layer.provideMerge(layerTestRedis))

/** An answer of the model server, for `script`. */
export const stream = (words: number, gapMs: number) => ({
  does: "stream" as const,
  lines: [
    ...Array.from({ length: words }, (_, i) => fake.chat(` ${i}`)),
    fake.done("chat", { eval_count: words })
  ],
  gapMs
})

export interface Reply {
  readonly status: number
  readonly id: string
  readonly text: string
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
}

let serial = 0

/** A tenant with a key that has `limits`. */
export const makeKey = Effect.fnUntraced(function* (
  limits: { readonly rpm?: number; readonly tpm?: number; readonly concurrent?: number } = {},
  total?: number
) {
  const registry = yield* Registry
  const tenant = `w-${++serial}`
  yield* registry.createTenant({ name: tenant, allowAllModels: true })
  const { key, secret } = yield* registry.createKey({ tenant, name: "k", ...limits })
  if (total !== undefined) yield* registry.setBudgets(key.prefix, { total })
  return { secret, prefix: key.prefix, tenant }
})

/** Each call has a connection of its own, unless `agent` is given, so the workers get them in turn. */
export const post = async (
  url: string,
  secret: string,
  body: object = hello(),
  agent?: Agent
): Promise<Reply> => {
  const answer = await request(new URL("/api/chat", url), {
    method: "POST",
    headers: {
      authorization: `Bearer ${secret}`,
      "content-type": "application/json",
      ...(agent === undefined ? { connection: "close" } : {})
    },
    body: JSON.stringify(body),
    ...(agent === undefined ? {} : { dispatcher: agent })
  })
  return {
    status: answer.statusCode,
    id: String(answer.headers["x-request-id"]),
    text: await answer.body.text(),
    headers: answer.headers
  }
}

export const get = async (url: string, path: string): Promise<Reply> => {
  const answer = await request(new URL(path, url), { headers: { connection: "close" } })
  return { status: answer.statusCode, id: "", text: await answer.body.text(), headers: answer.headers }
}

/** The sum of all series of a metric whose labels contain `labels`. */
export const figure = (text: string, name: string, labels = ""): number =>
  text
    .split("\n")
    .filter((line) => (line.startsWith(`${name}{`) || line.startsWith(`${name} `)) && line.includes(labels))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0)

export const ready = (url: string) =>
  eventually(
    Effect.promise(() => get(url, "/readyz").catch(() => ({ status: 0, id: "", text: "", headers: {} }))),
    ({ status }) => status === 200
  )

/** A gateway whose workers are all ready. */
export const startGateway = Effect.fnUntraced(function* (env: Readonly<Record<string, string>> = {}) {
  const [redis, fake] = [yield* TestRedis, yield* Fake]
  const gateway: GatewayProcess = yield* makeGatewayProcess({
    NODE_ENV: "production",
    DATABASE_URL: Redacted.value((yield* TestDatabase).url),
    REDIS_URL: redis.url,
    BACKEND_URL: fake.url,
    MODEL_DISCOVERY_REFRESH_S: "1",
    SHUTDOWN_DRAIN_MS: "300",
    WORKERS: "2",
    ...env
  })
  yield* eventually(
    Effect.sync(() => gateway.printed()),
    (printed) => printed.includes("listening on")
  )
  yield* ready(gateway.url)
  return gateway
})

export type Services = PgClient.PgClient
