/**
 * docs/hardening.md, A21: a full run of everything a gateway does, at LOG_LEVEL=debug, with keys and passwords in
 * every place a client or an operator can put them; then a look through all it said, printed, sent and stored.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { mintKey, prefixOf } from "../../src/domain/Key.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { type Ran, tollgateWith } from "../cli/tollgate.ts"
import { Collector, layerCollector } from "../support/Collector.ts"
import { makeFaultProxy } from "../support/FaultProxy.ts"
import { fake as wire, makeFakeBackend } from "../support/FakeBackend.ts"
import { eventually, generous, installed } from "../support/Gateway.ts"
import { makeGatewayProcess } from "../support/GatewayProcess.ts"
import { rawPost, rawRequest, talk } from "../support/RawClient.ts"
import { storedInPostgres, storedInRedis } from "../support/stored.ts"
import { layerPrivateRedis, TestRedisServer } from "../support/TestRedis.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const redisPassword = "redis-hidden-word"
const World = layerRegistry({ namespace: "tg_", defaults: { rpm: 60, tpm: 100_000, concurrent: 4 } }).pipe(
  Layer.provideMerge(TestPostgres),
  Layer.provideMerge(layerPrivateRedis(["--requirepass", redisPassword])),
  Layer.provideMerge(layerCollector)
)

const chat = (more: Readonly<Record<string, unknown>> = {}) => ({
  model: "m",
  stream: false,
  messages: [{ role: "user", content: "marker-prompt" }],
  ...more
})

const makeRun = Effect.gen(function* () {
  const [fake, registry, collector] = [yield* makeFakeBackend, yield* Registry, yield* Collector]
  const database = new URL(Redacted.value((yield* TestDatabase).url))
  const postgres = yield* makeFaultProxy({ host: database.hostname, port: Number(database.port) })
  const redis = yield* makeFaultProxy({ host: "127.0.0.1", port: (yield* TestRedisServer).port })
  fake.setModels(installed)
  database.password = "postgres-hidden-word"
  database.port = String(postgres.port)
  const gateway = yield* makeGatewayProcess({
    NODE_ENV: "production",
    LOG_LEVEL: "debug",
    DATABASE_URL: database.href,
    REDIS_URL: `redis://:${redisPassword}@127.0.0.1:${redis.port}`,
    BACKEND_URL: `http://127.0.0.1:${fake.port}`,
    OTLP_ENDPOINT: collector.url,
    MODEL_DISCOVERY_REFRESH_S: "1",
    BREAKER_FAILURES: "1000",
    SHUTDOWN_DRAIN_MS: "0"
  })
  const secrets: Array<string> = []
  const answers: Array<string> = []
  const remember = (secret: string): string => {
    secrets.push(secret)
    return secret
  }
  yield* registry.createTenant({ name: "acme", allowAllModels: true, ...generous })
  const key = (more: Partial<Parameters<Registry["Service"]["createKey"]>[0]> = {}) =>
    Effect.map(
      registry.createKey({ tenant: "acme", name: "k", allowDuplicate: true, ...more }),
      ({ secret }) => remember(secret)
    )
  const say = (bytes: string | Uint8Array) =>
    Effect.map(talk(gateway.url, bytes, { answers: 1 }), ({ responses, text }) => {
      answers.push(text)
      return responses[0]?.status
    })
  const post = (
    path: string,
    secret: string | undefined,
    body: unknown,
    headers: ReadonlyArray<string> = []
  ) =>
    say(
      rawPost(path, secret, typeof body === "string" ? body : JSON.stringify(body), [
        "Connection: close",
        ...headers
      ])
    )
  return {
    fake,
    registry,
    collector,
    database,
    postgres,
    redis,
    gateway,
    secrets,
    answers,
    remember,
    key,
    say,
    post
  }
})

type Run = Effect.Success<typeof makeRun>

/** A stack, a file of ours, a statement, a failed system call. */
const ourInside =
  /node_modules|\.[jt]s:\d|file:\/\/|\bat [\w.<>]+ \(|\bSELECT .+ FROM\b|INSERT INTO|ECONN|EPIPE|ETIMEDOUT/

/** What a model server may say that is nobody's business. */
const inside = "CUDA error at /root/.ollama/models on http://127.0.0.1:11434 marker-inside"

const serve = Effect.fnUntraced(function* ({ key, post }: Run) {
  const secret = yield* key()
  const body = { model: "m", prompt: "marker-prompt" }
  // A busy machine may read the list of models late.
  yield* eventually(post("/api/chat", secret, chat({ stream: false })), (status) => status === 200)
  for (const stream of [true, false]) {
    assert.strictEqual(yield* post("/api/chat", secret, chat({ stream })), 200)
    assert.strictEqual(yield* post("/v1/chat/completions", secret, chat({ stream })), 200)
    assert.strictEqual(yield* post("/api/generate", secret, { ...body, stream }), 200)
    assert.strictEqual(yield* post("/v1/completions", secret, { ...body, stream }), 200)
  }
  const embed = { model: "embedder", input: "marker-prompt", prompt: "marker-prompt" }
  for (const path of ["/api/embed", "/api/embeddings", "/v1/embeddings", "/api/show"])
    assert.strictEqual(yield* post(path, secret, embed), 200, path)
})

/** A key in every place where no key belongs. */
const misplace = Effect.fnUntraced(function* ({ key, post, remember, say }: Run) {
  const secret = yield* key()
  const cut = remember(yield* key()).slice(0, 40)
  const bearer = `Authorization: Bearer ${secret}`
  const padded = `/api/${"x".repeat(90)}/${secret}`
  const escaped = `/api/${[...secret].map((char) => `%${char.charCodeAt(0).toString(16)}`).join("")}`
  const twice = escaped.replaceAll("%", "%25")
  for (const target of [
    `/api/${secret}`,
    `/v1/models/${cut}`,
    `/api/tags/?key=${secret}`,
    padded,
    escaped,
    twice
  ]) {
    assert.strictEqual(yield* say(rawRequest("GET", target, [bearer])), 403, target)
  }
  for (const headers of [
    [],
    [bearer, bearer],
    [`Authorization: Basic ${secret}`],
    [`X-API-Key: ${secret}`]
  ]) {
    assert.strictEqual(yield* say(rawRequest("GET", `/api/tags?api_key=${secret}`, headers)), 401)
  }
  const everywhere = [
    `X-Request-ID: ${secret}`,
    `User-Agent: agent ${secret}`,
    `Cookie: key=${secret}`,
    `Traceparent: 00-${secret}`,
    `X-Forwarded-For: ${secret}`
  ]
  assert.strictEqual(yield* post("/api/chat", secret, chat(), everywhere), 200)
  for (const model of [
    secret,
    `${"m".repeat(100)}${secret}`,
    cut,
    `a\u0000${secret}`,
    "\ud800",
    "m".repeat(200_000)
  ]) {
    assert.oneOf(yield* post("/api/chat", secret, chat({ model }), everywhere), [400, 403])
  }
  for (const bad of [
    chat({ [secret]: 1, messages: secret }),
    chat({ options: { [secret]: secret, num_predict: secret } }),
    chat({ messages: [{ role: secret, content: "x" }] }),
    chat({ template: secret }),
    chat({ format: { pattern: secret } }),
    `{"${secret}":1,"${secret}":2}`,
    `{"model":"${secret}`,
    secret
  ]) {
    assert.oneOf(yield* post("/api/chat", secret, bad), [200, 400, 403])
    assert.oneOf(yield* post("/v1/chat/completions", secret, bad), [200, 400, 403])
  }
  assert.strictEqual(yield* post("/api/chat", secret, "x".repeat(300_000)), 413)
  for (const bytes of [
    `${secret}\r\n\r\n`,
    `GET /${secret} HTTP/9\r\n\r\n`,
    `GET / HTTP/1.1\r\n${secret} : x\r\n\r\n`
  ])
    assert.strictEqual(yield* say(bytes), 400)
})

const refuse = Effect.fnUntraced(function* ({ key, post, registry, remember }: Run) {
  const [revoked, disabled, scoped, poor, slow] = [
    yield* key(),
    yield* key(),
    yield* key({ scopes: ["embeddings"] }),
    yield* key(),
    yield* key({ rpm: 1 })
  ]
  yield* registry.revokeKey(prefixOf(revoked))
  yield* registry.setKeyEnabled(prefixOf(disabled), false)
  yield* registry.changeKey(prefixOf(poor), { budgetDaily: 0 })
  const wrong = remember(prefixOf(poor) + mintKey("tg_").slice(-32))
  for (const secret of [revoked, disabled, wrong, remember(mintKey("tg_")), `${scoped.slice(0, -1)}_`])
    assert.strictEqual(yield* post("/api/chat", secret, chat()), 401)
  assert.strictEqual(yield* post("/api/chat", scoped, chat()), 403)
  assert.strictEqual(yield* post("/api/chat", poor, chat()), 429)
  yield* post("/api/chat", slow, chat())
  assert.strictEqual(yield* post("/v1/chat/completions", slow, chat()), 429)
})

const breakBackend = Effect.fnUntraced(function* ({ fake, key, post }: Run) {
  const secret = yield* key()
  const where = `http://127.0.0.1:${fake.port}/${secret}`
  fake.script(
    { does: "answer", status: 500, body: `<pre>${inside}</pre>`, contentType: "text/html" },
    { does: "answer", status: 400, body: JSON.stringify({ error: `${inside} ${secret}` }) },
    { does: "answer", status: 302, headers: { location: where, "set-cookie": secret } },
    { does: "answer", status: 200, body: `${inside} ${secret}` },
    { does: "stream", lines: [wire.error(`${inside} ${secret}`)] },
    { does: "stream", lines: [wire.chat("Hi"), wire.error(`${inside} ${secret}`)] },
    { does: "stream", lines: [wire.chat("Hi"), `${secret} ${inside}\n`] },
    { does: "stream", lines: [wire.chat("Hi")], ends: "reset" },
    { does: "reset" },
    { does: "raw", bytes: `HTTP/1.1 ${secret}\r\n\r\n` }
  )
  for (const expected of [502, 400, 502, 502, 502, 200, 200, 200, 502, 502])
    assert.strictEqual(yield* post("/api/chat", secret, chat({ stream: true })), expected)
})

/** Rows that Postgres refuses and repeats in its error, and stores that are gone. */
const breakStores = Effect.fnUntraced(function* ({ key, post, postgres, redis, registry }: Run) {
  const secret = yield* key()
  yield* registry.changeKey(prefixOf(secret), { promptLog: true })
  yield* sql`ALTER TABLE prompt_log ADD CONSTRAINT none CHECK (prompt = '') NOT VALID`
  yield* sql`ALTER TABLE audit_log ADD CONSTRAINT none CHECK (client_request_id <> 'marker-row') NOT VALID`
  yield* Effect.sleep("1200 millis")
  assert.strictEqual(yield* post("/api/chat", secret, chat()), 200)
  yield* post("/api/chat", secret, chat(), ["X-Request-ID: marker-row"])
  yield* sql`ALTER TABLE audit_log DROP CONSTRAINT none`
  // Three tries a second apart before a transcript is given up, and told of.
  yield* Effect.sleep("3500 millis")
  for (const store of [postgres, redis]) {
    for (const fault of [store.blackHole(), Effect.andThen(store.refuse, store.reset)]) {
      yield* fault
      for (const one of [secret, mintKey("tg_")]) {
        assert.strictEqual(
          yield* post("/api/chat", one, chat()),
          store === redis && one !== secret ? 401 : 503
        )
      }
      yield* store.heal
      assert.strictEqual(
        yield* eventually(post("/api/chat", secret, chat()), (status) => status === 200),
        200
      )
    }
  }
})

const administer = Effect.fnUntraced(function* ({ database, remember }: Run) {
  const run = (...args: ReadonlyArray<string>) => tollgateWith({ DATABASE_URL: database.href }, args)
  const created = yield* run("create-key", "--tenant", "acme", "--name", "cli")
  const first = remember(created.stdout.trimEnd())
  const rotated = yield* run("rotate-key", "--prefix", prefixOf(first))
  remember(rotated.stdout.split("\n")[0] ?? "")
  const quiet: Array<Ran> = []
  for (const args of [
    ["list-keys", "--tenant", "acme", "--json"],
    ["revoke-key", "--prefix", prefixOf(first)],
    ["revoke-key", "--prefix", first],
    ["revoke-key", first],
    ["create-tenant", "--name", first, "--rpm", first],
    ["show-usage", "--tenant", first, "--period", "day"],
    [first]
  ])
    quiet.push(yield* run(...args))
  return [created.stderr, rotated.stderr, ...quiet.map(({ stdout, stderr }) => stdout + stderr)]
})

const test = testWith(it.live, World)

test("when everything was asked and broken once, then no secret is in anything said, printed, sent or stored, and nothing internal in any answer", function* () {
  const run = yield* makeRun
  for (const part of [serve, misplace, refuse, breakBackend, breakStores]) yield* part(run)
  const commands = yield* administer(run)
  yield* run.say("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
  yield* run.say(rawRequest("GET", "/readyz"))
  yield* Effect.sleep("2500 millis")
  const tables = yield* storedInPostgres
  const keys = yield* storedInRedis(`redis://:${redisPassword}@127.0.0.1:${(yield* TestRedisServer).port}`)
  assert.strictEqual(yield* run.gateway.stop, 0, run.gateway.printed())

  const printed = run.gateway.printed()
  const everything = new Map([
    ["answers", run.answers.join("\n")],
    ["log", printed],
    ["traces", run.collector.bodies.join("\n")],
    ["commands", commands.join("\n")],
    ["redis", keys.join("\n")],
    ...tables
  ])
  // Each of these has something to look through, and what it holds shows that the look is at the right place.
  for (const [place, mark] of [
    ["answers", "gateway_requests_total"],
    ["log", '"fault":"status"'],
    ["traces", "POST /api/chat"],
    ["commands", "unknown command"],
    ["redis", "{"],
    ["audit_log", "tg_"],
    ["api_keys", "$argon2id$"]
  ] as const) {
    assert.include(everything.get(place), mark, place)
  }
  const hidden = [...run.secrets.flatMap((key) => [key.slice(12, 28), key.slice(-16)]), "hidden-word"]
  for (const [place, text] of everything) {
    for (const secret of hidden) assert.notInclude(text, secret, place)
    if (place !== "redis") assert.notInclude(text, "marker-prompt", place)
    if (place !== "log") assert.notInclude(text, "marker-inside", place)
  }
  const addresses = [run.fake.port, run.postgres.port, run.redis.port].map((port) => `127.0.0.1:${port}`)
  for (const said of [...run.answers, everything.get("audit_log") ?? "", ...commands]) {
    assert.notMatch(said, ourInside)
    for (const address of addresses) assert.notInclude(said, address)
  }
  // What the backend says, and where it is, is for whoever asks for debug.
  for (const line of printed.split("\n").filter((line) => !line.includes('"level":"debug"'))) {
    assert.notInclude(line, "marker-inside")
    assert.notInclude(line, `:${run.fake.port}`)
  }
})
