/**
 * Coding agents as `tollgate connect` sets them up, offline: each writes a file with its own tool, is stopped in the middle of
 * an answer, and shows its user what was refused. The model server is the tests' own, so nothing but the agents has to be
 * installed. `AGENTS=codex,pi` runs some; `WRITE=1` writes the table of docs/clients/README.md.
 */
import { readFileSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { Registry } from "../src/admin/Registry.ts"
import type { Behaviour } from "../test/support/Behaviour.ts"
import { fake, type Recorded } from "../test/support/FakeBackend.ts"
import {
  call,
  type Environment,
  eventually,
  Fake,
  hello,
  layerFake,
  layerGatewayOn,
  newKey
} from "../test/support/Gateway.ts"
import { layerTestPostgres } from "../test/support/TestPostgres.ts"
import { layerPrivateRedis, TestRedisServer } from "../test/support/TestRedis.ts"
import { expectRepairs } from "../test/support/watch.ts"
import { saidAtTheEnd, writesFile, written } from "./agents/model.ts"
import { type AgentName, agents, all, runAgent } from "./agents/runAgent.ts"
import { asksAgain, type Refusal, shown, tableOfRefusals } from "./agents/shown.ts"
import { installAgents } from "./clients/install.ts"
import { withTable } from "./clients/table.ts"
import { testWith } from "../test/support/testWith.ts"
import { sql } from "../test/support/sql.ts"

/** Agents that run beside each other. Most of the time they wait. */
const atOnce = { concurrency: 8 }
const signals = ["SIGINT", "SIGKILL"] as const

/** Each agent has models of its own, so that agents beside each other do not meet the answers of another one. */
const modelOf = (name: AgentName, does: string): string => `${does.toLowerCase()}-${name}:latest`
const models = agents.flatMap((name) => ["writes", "fails", ...signals].map((does) => modelOf(name, does)))

/** What a model does; every other one answers at once. */
const behaviours = new Map<string, (request: Recorded) => Behaviour>()

/** Frames that an agent has when it is stopped. */
const seenFrames = 10
/** Words, and then no end. */
const endless: Behaviour = {
  does: "stream",
  lines: Array.from({ length: 40 }, () => fake.chat("word ")),
  gapMs: 20,
  ends: "hang"
}

const layerAgents = (env: Environment = {}) => {
  const ready = Effect.gen(function* () {
    // Once, before agents run beside each other.
    yield* installAgents()
    const backend = yield* Fake
    const { secret } = yield* newKey()
    backend.setModels(["m:latest", ...models])
    backend.always((request) => behaviours.get(String(request.body?.["model"]))?.(request) ?? fake.atOnce())
    yield* eventually(call("/api/tags", { secret }), ({ text }) => models.every((one) => text.includes(one)))
  })
  // Agents ask for the model that fails together, and the others must not meet an open circuit.
  const settings = { EXTRA_SURFACES: "responses,messages", BREAKER_FAILURES: "1000", ...env }
  return Layer.effectDiscard(ready).pipe(
    Layer.provideMerge(layerGatewayOn(settings)),
    Layer.provideMerge(Layer.fresh(layerFake)),
    Layer.provideMerge(layerTestPostgres()),
    Layer.provideMerge(layerPrivateRedis())
  )
}

/** How many of a key's requests ended so, and the output tokens they were charged. */
const ended = Effect.fnUntraced(function* (prefix: string, status: number) {
  const [row] = yield* sql<{
    readonly requests: number
    readonly output: number
  }>`SELECT coalesce(sum(repeats), 0)::float8 AS requests, coalesce(sum(tokens_out), 0)::float8 AS output
     FROM audit_log WHERE key_prefix = ${prefix} AND status = ${status}`
  return row ?? { requests: 0, output: 0 }
})

/** So long an agent shows nothing after it was refused: then it waits for `Retry-After`, which may be a day. */
const silenceMs = 20_000

/** The key's requests were refused three times, or once and nothing came after that. */
const askedAgain = Effect.fnUntraced(function* (prefix: string, status: number) {
  const sql = yield* SqlClient.SqlClient
  let since = Infinity
  // The test runs it.
  // @effect-diagnostics-next-line returnEffectInGen:off
  return Effect.repeat(
    Effect.map(ended(prefix, status), ({ requests }) => {
      if (requests > 0) since = Math.min(since, performance.now())
      return requests >= 3 || performance.now() - since > silenceMs
    }),
    { until: (isSo) => isSo, schedule: Schedule.spaced("500 millis") }
  ).pipe(Effect.provideService(SqlClient.SqlClient, sql), Effect.orDie)
})

/** The key and the model with which an agent meets the refusal. */
const refusedBy = Effect.fnUntraced(function* (name: AgentName, refusal: Refusal) {
  const [registry, { prefix, secret }] = [yield* Registry, yield* newKey()]
  const asked = { secret, model: modelOf(name, "writes") }
  switch (refusal) {
    case "401":
      return { prefix, ...asked, secret: `${secret.slice(0, -1)}${secret.endsWith("0") ? "1" : "0"}` }
    case "403":
      return { prefix, ...asked, model: "nobody-has:latest" }
    case "429, a budget is spent":
      yield* registry.changeKey(prefix, { budgetTotal: 1 })
      yield* eventually(call("/api/chat", { secret, body: hello() }), ({ status }) => status === 429)
      return { prefix, ...asked }
    case "502":
      behaviours.set(modelOf(name, "fails"), () => ({ does: "reset" }))
      return { prefix, ...asked, model: modelOf(name, "fails") }
    default:
      return { prefix, ...asked }
  }
})

/** Runs an agent that is refused; the words of the table when it shows them, else what it said. */
const refuse = Effect.fnUntraced(function* (name: AgentName, refusal: Refusal) {
  const { prefix, ...asked } = yield* refusedBy(name, refusal)
  const words = shown[name][refusal]
  const until = yield* askedAgain(prefix, Number.parseInt(refusal, 10))
  const ran = yield* runAgent(name, { ...asked, ...(words === asksAgain ? { until } : {}) })
  const isAsExpected = words === asksAgain ? ran.code === null : ran.said.includes(words)
  return [`${name}, ${refusal}`, ran.file, isAsExpected ? words : ran.said]
})

/** Every agent meets every one of the refusals. */
const refuseAll = (which: ReadonlyArray<Refusal>) =>
  Effect.gen(function* () {
    const cases = which.flatMap((refusal) => agents.map((name) => ({ name, refusal })))
    const seen = yield* Effect.forEach(cases, ({ name, refusal }) => refuse(name, refusal), atOnce)
    assert.deepStrictEqual(
      seen,
      cases.map(({ name, refusal }) => [`${name}, ${refusal}`, undefined, shown[name][refusal]])
    )
  })

const options = { excludeTestServices: true, timeout: 3_600_000 }

layer(layerAgents(), options)("coding agents as connect sets them up", (it) => {
  const test = testWith(it.effect)

  test("when agents are asked, then each writes a file with its own tool and shows the answer", function* () {
    const { secret } = yield* newKey()
    const ask = Effect.fnUntraced(function* (name: AgentName) {
      const model = modelOf(name, "writes")
      const ran = yield* runAgent(name, { secret, model }, (project) =>
        behaviours.set(model, (request) => writesFile(project, request))
      )
      return [name, ran.code, ran.file, ran.said.includes(saidAtTheEnd) ? saidAtTheEnd : ran.said]
    })
    assert.deepStrictEqual(
      yield* Effect.forEach(agents, ask, atOnce),
      agents.map((name) => [name, 0, written.text, saidAtTheEnd])
    )
  })

  test("when agents are interrupted or killed in a stream, then the model server stops and what came is charged", function* () {
    const backend = yield* Fake
    const stop = Effect.fnUntraced(function* (name: AgentName, signal: (typeof signals)[number]) {
      const { prefix, secret } = yield* newKey()
      const model = modelOf(name, signal)
      behaviours.set(model, () => endless)
      const calls = () => backend.requests.filter(({ body }) => body?.["model"] === model)
      const frame = JSON.stringify(fake.chat("word ")).length
      const until = backend.until(() => calls().some(({ written }) => written > seenFrames * frame))
      yield* runAgent(name, { secret, model, until, signal })
      yield* backend.until(() => calls().every(({ closedAt }) => closedAt !== undefined))
      const left = yield* eventually(ended(prefix, 499), ({ requests }) => requests === calls().length)
      return { who: `${name}, ${signal}`, ...left }
    })
    const cases = agents.flatMap((name) => signals.map((signal) => ({ name, signal })))
    const seen = yield* Effect.forEach(cases, ({ name, signal }) => stop(name, signal), atOnce)
    // Besides, a request with tools is charged what the model may have generated unseen. Slots, holds and sums are looked at
    // after every test.
    for (const { output, requests, who } of seen) {
      assert.isAtLeast(requests, 1, who)
      assert.isAtLeast(output, seenFrames, who)
    }
  })

  test("when a limit is reached for a while, then agents ask again and go on", function* () {
    behaviours.set("m:latest", () => endless)
    const wait = Effect.fnUntraced(function* (name: AgentName) {
      const { prefix, secret } = yield* newKey({ concurrent: 1 })
      const holder = yield* Effect.forkChild(call("/api/chat", { secret, body: hello() }))
      const model = modelOf(name, "writes")
      const refused = eventually(ended(prefix, 429), ({ requests }) => requests > 0)
      const release = yield* Effect.forkChild(Effect.andThen(refused, Fiber.interrupt(holder)))
      const ran = yield* runAgent(name, { secret, model }, (project) =>
        behaviours.set(model, (request) => writesFile(project, request))
      )
      yield* Fiber.interrupt(release)
      return [name, ran.code, ran.file ?? ran.said]
    })
    assert.deepStrictEqual(
      yield* Effect.forEach(agents, wait, atOnce),
      agents.map((name) => [name, 0, written.text])
    )
    behaviours.delete("m:latest")
  })

  it.effect("when agents are refused, then their users learn why, and no file is written", () =>
    refuseAll(["401", "403", "429, a budget is spent", "502"])
  )

  test("when the cache store is away, then users learn that the service is", function* () {
    const redis = yield* TestRedisServer
    yield* expectRepairs
    yield* redis.kill
    yield* Effect.ensuring(refuseAll(["503"]), Effect.orDie(redis.start))
  })
})

layer(layerAgents({ MAX_REQUEST_BODY_BYTES: "2048" }), options)("coding agents that send too much", (it) => {
  it.effect("when a body is too large, then users learn it", () => refuseAll(["413"]))

  it.effect("when refusals were seen, then the guide's table has them", () =>
    Effect.sync(() => {
      const guide = path.resolve(import.meta.dirname, "../docs/clients/README.md")
      const text = readFileSync(guide, "utf8")
      const next = withTable(text, tableOfRefusals(all), "refusals")
      if (process.env["WRITE"] === "1") writeFileSync(guide, next)
      else assert.strictEqual(text, next, "WRITE=1 npm run test:agents writes it")
    })
  )
})
