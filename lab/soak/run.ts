/**
 * `npm run soak`: mixed traffic on two replicas while one thing after the other that they need is killed, frozen,
 * slowed or cut, and they themselves too, and attackers do their worst beside it (`attackers.ts`). Prints what happened and
 * ends with 1 when anything was answered that should have been refused, refused or cut that should not, lost, counted
 * twice, left behind, or when memory or an attacker's budget was not bounded.
 *
 * Arguments: `--minutes 10 --seed <n> --clients 24`; `--minutes 2` is a short one. The same seed brings the same faults in
 * the same order. `--only <text>` keeps the faults with that text in their name, as `--only "postgres frozen"`. `--no-faults` leaves the attackers alone with the honest clients.
 */
import { parseArgs } from "node:util"
import { Effect, Fiber } from "effect"
import { settledBooks } from "../../test/support/books.ts"
import { allCorrections, spentOf, tokensInMinute, unaudited, wronglyRefused } from "../books.ts"
import { type Figure, figure, percentile, table } from "../scale/figures.ts"
import { closePools } from "../scale/Load.ts"
import { leaseS, newKey } from "../scale/World.ts"
import { leaksIn } from "../../test/support/invariants/leaks.ts"
import { secrets } from "../../test/support/invariants/Witness.ts"
import { bookProblems, rowProblems } from "../../test/support/invariants.ts"
import { Ground, layerGround } from "./Ground.ts"
import { makeAttackers } from "./attackers.ts"
import { Observed } from "./Observed.ts"
import {
  busiestAnswered,
  correctionsByFault,
  peakOf,
  recoveries,
  sampleOf,
  type Sample,
  samples,
  unexplained
} from "./report.ts"
import { limits, makeKeys, revocations, traffic } from "./traffic.ts"
import { weather } from "./weather.ts"

const { values: options } = parseArgs({
  options: {
    minutes: { type: "string", default: "10" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    clients: { type: "string", default: "24" },
    only: { type: "string", default: "" },
    "no-faults": { type: "boolean", default: false }
  }
})
const [minutes, seed] = [Number(options.minutes), Number(options.seed)]

const say = (text: string) => Effect.sync(() => void process.stdout.write(`${text}\n`))

/** Prompt of a request in these runs, in tokens: what the last one on a limit may cost beyond its hold. */
const prompt = 20

/** Of one replica that may have 512, whoever attacks it. */
const maxMiB = 480

const soak = Effect.gen(function* () {
  const ground = yield* Ground
  const { addresses, backend, printed, replicas } = ground
  const observed = new Observed({ secrets, addresses })
  const keys = yield* makeKeys
  const passing = yield* Effect.forEach(
    Array.from({ length: Math.ceil(minutes * 15) }, (_, i) => i),
    (i) => newKey(`passing-${i}`)
  )
  const began = performance.now()
  const until = began + minutes * 60_000
  const over = () => performance.now() > until
  const attackers = yield* makeAttackers(over, keys.free[0], say)
  for (const { secret } of [...Object.values(keys).flat(), ...passing, ...attackers.keys]) secrets.add(secret)
  yield* say(`soak: ${minutes} minutes, seed ${seed}, ${options.clients} clients, two replicas`)

  const memory: Array<Sample> = []
  const measure = Effect.sync(() => void memory.push(sampleOf(began, replicas)))
  const clients = yield* Effect.forkChild(traffic(keys, observed, Number(options.clients), seed, over), {
    startImmediately: true
  })
  const revoking = yield* Effect.forkChild(revocations(passing, observed, over), { startImmediately: true })
  const measuring = yield* Effect.forkChild(
    Effect.forever(Effect.andThen(measure, Effect.sleep(minutes * 6000))),
    { startImmediately: true }
  )
  const attacking = yield* Effect.forkChild(attackers.run, { startImmediately: true })
  const peaks: Array<number> = []
  const watching = yield* Effect.forkChild(
    Effect.forever(
      Effect.andThen(
        Effect.sync(() => void peaks.push(peakOf(replicas))),
        Effect.sleep("500 millis")
      )
    )
  )
  const happened = options["no-faults"]
    ? yield* Effect.as(Effect.sleep(minutes * 60_000), [])
    : yield* weather(keys.probe, observed, seed, over, say, options.only)
  yield* Fiber.join(attacking)
  yield* Fiber.interrupt(watching)
  yield* Fiber.join(clients)
  yield* Fiber.join(revoking)
  yield* Fiber.interrupt(measuring)
  const seconds = (performance.now() - began) / 1000

  const end = yield* settledBooks(leaseS + 15)
  yield* closePools
  // Idle connections to and from the replicas end by themselves.
  yield* Effect.sleep("5 seconds")
  yield* measure
  const killed = happened.flatMap(({ beganAt, fault }) =>
    /^replica \d killed$/.test(fault) ? [beganAt] : []
  )
  const rows = yield* rowProblems(observed.answers, observed.known, killed)
  const problems = [
    ...observed.violations,
    ...(yield* bookProblems),
    ...rows,
    ...printed.leaks.map((leak) => `in the log: ${leak}`),
    ...printed.complaints.map((line) => `in the log: ${line}`),
    ...replicas.flatMap((replica, i) => (replica.died() ? [`replica ${i + 1} has ended by itself`] : []))
  ]
  for (const { url } of replicas) {
    const text = yield* Effect.promise(() => fetch(`${url}/metrics`).then((response) => response.text()))
    problems.push(...leaksIn(text, observed.known).map((leak) => `in the metrics: ${leak}`))
  }
  const corrected = yield* allCorrections
  const [first, last] = [memory[1] ?? memory[0], memory.at(-1)]
  const served = [...observed.servedForMs].sort((a, b) => a - b)
  const figures: ReadonlyArray<Figure> = [
    figure("requests", observed.total),
    figure("requests per second", Math.round(observed.total / seconds)),
    figure("faults", happened.length),
    ...[...observed.outcomes]
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([name, { count, longestMs }]) => figure(`  ${name} (${longestMs} ms at most)`, count)),
    figure("longest wait for a 503 of a replica that was there, ms", observed.longestRefusalMs),
    figure(
      "502 and 503 while all was well, % of the requests",
      (100 * observed.needless.calm) / Math.max(1, observed.total),
      (percent) => percent <= 1
    ),
    figure("502 and 503 while only the other replica was gone", observed.needless.neighbour),
    figure("keys revoked in use", served.length),
    figure("served after its revocation, ms: median", Math.round(percentile(served, 0.5))),
    figure("served after its revocation, ms: longest", Math.round(served.at(-1) ?? 0), (ms) => ms <= 1000),
    figure(
      `busiest 60 s of the key with rpm ${limits.rpm}`,
      yield* busiestAnswered(keys.rate.prefix),
      (n) => n <= limits.rpm
    ),
    // A process that died holds its requests for a while: only without faults is each refusal right.
    figure(
      "  its refusals with room in the window",
      yield* wronglyRefused(keys.rate.prefix, limits.rpm),
      (n) => n === 0 || !options["no-faults"]
    ),
    figure(
      `most at once on the key with ${limits.concurrent} slots`,
      backend.most.get("slots") ?? 0,
      (n) => n <= limits.concurrent
    ),
    figure(
      `tokens in the busiest 60 s of the key with tpm ${limits.tpm}`,
      yield* tokensInMinute(keys.tokens.prefix),
      (n) => n <= limits.tpm + prompt
    ),
    figure(
      `tokens of the key with a budget of ${limits.budget}`,
      yield* spentOf(keys.budget.prefix),
      (n) => n <= limits.budget + prompt
    ),
    ...(yield* attackers.figures),
    figure("memory of a replica at most, MiB", Math.max(0, ...peaks), (most) => most <= maxMiB),
    figure("answers looked for in the audit log", observed.answers.length),
    figure("corrections of audit rows", corrected.length),
    figure(
      "of them closed by another replica, and no fault explains it",
      unexplained(corrected, happened).length,
      (n) => n === 0
    ),
    figure("reached the backend", backend.seen.size),
    figure("of them without an audit row", yield* unaudited(backend.seen), (n) => n === 0),
    figure("seconds until the books were closed", end.seconds),
    figure("audit, tokens", end.audit),
    figure("ledger, tokens", end.ledger, (n) => n === end.audit),
    figure("live counters, tokens", end.counters, (n) => n === end.ledger),
    figure("slots, holds and intents left", end.open, (n) => n === 0),
    figure("log lines", printed.lines),
    figure(
      "descriptors of both, at first and at the end",
      `${first?.descriptors}, ${last?.descriptors}`,
      () => (last?.descriptors ?? 0) <= (first?.descriptors ?? 0) + 50
    ),
    figure("violations", problems.length, (n) => n === 0)
  ]
  yield* say("")
  yield* say(table("Figures", figures))
  yield* say(recoveries(happened))
  yield* say(correctionsByFault(corrected, happened))
  yield* say(samples(memory))
  for (const problem of problems.slice(0, 40)) yield* say(`VIOLATION ${problem}`)
  return figures.every(({ right }) => right)
})

const program = soak.pipe(
  // The servers go with this process. A client of a server that was killed under it may wait for ever to be closed.
  Effect.tap((right) =>
    Effect.sync(() => {
      process.exitCode = right ? 0 : 1
      setTimeout(() => process.exit(), 20_000).unref()
    })
  ),
  Effect.ensuring(closePools),
  Effect.provide(layerGround),
  Effect.scoped
)
await Effect.runPromise(program)
// Node 24 may loop for ever while it closes its handles at a natural end.
process.exit()
