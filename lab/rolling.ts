/**
 * `npm run rolling`: two replicas behind the load balancer of `deploy/haproxy`, 50 streams at any time, and each
 * replica is restarted once. Prints what the clients saw and what was counted; anything lost is a non-zero exit.
 *
 * Arguments: `--streams 50 --frames 80 --gap 75` (milliseconds between two frames).
 */
import { parseArgs } from "node:util"
import { Data, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Registry } from "../src/admin/Registry.ts"
import { fake, makeFakeBackend } from "../test/support/FakeBackend.ts"
import { freePort } from "../test/support/servers/processes.ts"
import { balance } from "./haproxy.ts"
import { newKey, ready } from "./scale/World.ts"
import { makeServers } from "./servers.ts"
import { posting } from "../test/support/posting.ts"

const { values: given } = parseArgs({
  options: {
    streams: { type: "string", default: "50" },
    frames: { type: "string", default: "80" },
    gap: { type: "string", default: "75" }
  }
})
const [streams, frames, gapMs] = [Number(given.streams), Number(given.frames), Number(given.gap)]

class Lost extends Data.TaggedError("Lost")<{ readonly message: string }> {}

const say = (line: string) => Effect.sync(() => void process.stdout.write(`${line}\n`))

interface Seen {
  readonly status: number
  readonly frames: number
  readonly whole: boolean
  /** longest silence between two reads, milliseconds */
  readonly silence: number
}

/** One chat on a connection of its own choice, as any client would make it. */
const chat = Effect.fnUntraced(function* (url: string, secret: string) {
  const read = yield* Effect.tryPromise(async () => {
    const body = { model: "m", messages: [{ role: "user", content: "Hello" }] }
    const response = await fetch(`${url}/api/chat`, posting(secret, body))
    let [text, silence, last] = ["", 0, performance.now()]
    const decoder = new TextDecoder()
    if (response.body !== null) {
      for await (const chunk of response.body) {
        text += decoder.decode(chunk, { stream: true })
        const now = performance.now()
        silence = Math.max(silence, now - last)
        last = now
      }
    }
    return { status: response.status, lines: text.trimEnd().split("\n"), silence }
  }).pipe(Effect.catch((error) => Effect.succeed({ status: 0, lines: [String(error.cause)], silence: 0 })))
  const whole = read.lines.at(-1)?.includes('"done":true') === true
  if (!whole)
    yield* say(
      `  broken: ${read.status} after ${read.lines.length} lines: ${read.lines.at(-1)?.slice(0, 200)}`
    )
  return { status: read.status, frames: read.lines.length - 1, whole, silence: read.silence } satisfies Seen
})

const rolling = Effect.gen(function* () {
  const backend = yield* makeFakeBackend
  backend.setModels(["m:latest"])
  backend.always({
    does: "stream",
    lines: [
      ...Array.from({ length: frames }, (_, i) => fake.chat(` ${i}`)),
      fake.done("chat", { prompt_eval_count: 7, eval_count: frames })
    ],
    gapMs
  })
  const env = { LOG_LEVEL: "error", SHUTDOWN_DRAIN_MS: "2000", TRUSTED_PROXIES: "127.0.0.1" }
  const { layer, servers } = yield* makeServers(backend.url, env)
  const { replicas } = servers
  const books = yield* Layer.build(layer)
  const { secret } = yield* Effect.provideContext(newKey("team"), books)
  const front = yield* freePort
  const url = `http://127.0.0.1:${front}`
  yield* balance(front, [replicas[0].url, replicas[1].url])
  yield* ready(url)

  const seen: Array<Seen> = []
  let rolled = false
  const client = chat(url, secret).pipe(
    Effect.tap((one) => Effect.sync(() => seen.push(one))),
    Effect.repeat({ until: () => rolled })
  )
  // Spread over one stream's life, so that at any moment some begin and some end.
  const spread = (frames * gapMs) / streams
  const clients = yield* Effect.forkChild(
    Effect.forEach(
      Array.from({ length: streams }, (_, i) => i),
      (i) => Effect.delay(client, `${Math.round(i * spread)} millis`),
      { concurrency: "unbounded", discard: true }
    )
  )
  yield* Effect.sleep(`${frames * gapMs} millis`)
  yield* say(
    `${streams} streams at a time, ${frames} frames each, ${gapMs} ms between frames, two replicas behind haproxy`
  )

  for (const [i, replica] of replicas.entries()) {
    const began = performance.now()
    const code = yield* replica.stop
    const took = ((performance.now() - began) / 1000).toFixed(1)
    yield* say(`replica ${i + 1}: told to stop, exit ${code} after ${took} s`)
    if (code !== 0) return yield* new Lost({ message: `replica ${i + 1} ended with ${code}` })
    yield* replica.start
    // The balancer wants two good answers before it sends anybody.
    yield* Effect.sleep("1500 millis")
  }
  rolled = true
  yield* Fiber.join(clients)

  const broken = seen.filter((one) => one.status !== 200 || !one.whole || one.frames !== frames).length
  const silence = Math.max(...seen.map((one) => one.silence))
  const { counted, usage } = yield* Effect.gen(function* () {
    const [registry, sql] = [yield* Registry, yield* SqlClient.SqlClient]
    const [counted] = yield* sql<{ rows: number; good: number; tokens: number; open: number }>`
      SELECT count(*)::int AS rows, (count(*) FILTER (WHERE status = 200))::int AS good,
        coalesce(sum(tokens_in + tokens_out), 0)::int AS tokens,
        (SELECT count(*) FROM intents)::int AS open FROM audit_log WHERE key_prefix IS NOT NULL`
    return { counted, usage: yield* registry.usage("team", "total") }
  }).pipe(Effect.provideContext(books))
  if (counted === undefined) return yield* new Lost({ message: "nothing was counted" })
  const tokens = seen.length * (frames + 7)
  yield* say(`streams            ${seen.length}, broken ${broken}`)
  yield* say(`longest silence    ${Math.round(silence)} ms in any stream`)
  yield* say(
    `audit rows         ${counted.rows}, with status 200 ${counted.good}, still open ${counted.open}`
  )
  yield* say(
    `tokens             seen ${tokens}, audited ${counted.tokens}, ledger ${usage.tokensIn + usage.tokensOut}`
  )
  const good =
    broken === 0 &&
    seen.length > streams &&
    counted.rows === seen.length &&
    counted.good === seen.length &&
    counted.open === 0 &&
    counted.tokens === tokens &&
    usage.tokensIn + usage.tokensOut === tokens &&
    usage.requests === seen.length
  if (!good) return yield* new Lost({ message: "a stream was cut or not counted" })
  yield* say("none cut, all counted")
})

process.exitCode = await Effect.runPromise(
  rolling.pipe(
    Effect.timeout("5 minutes"),
    Effect.scoped,
    Effect.as(0),
    Effect.catchCause((cause) => Effect.as(say(`FAILED ${cause}`), 1))
  )
)
