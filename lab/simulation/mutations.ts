/**
 * `node lab/simulation/mutations.ts`: puts defects into a copy of the source, one at a time, and looks for the first seed that
 * finds each. Exit code 1 when one is not found within the seeds (`--seeds 2000`), or when its text is not in its file.
 */
import { execFile } from "node:child_process"
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { parseArgs, promisify } from "node:util"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"

/** What is wrong then, in which file, and the text that is replaced by another. */
type Mutation = readonly [what: string, file: string, text: string, instead: string]

const mutations: ReadonlyArray<Mutation> = [
  // The end of a request
  [
    "a client that leaves costs nothing in the counters",
    "request/finish.ts",
    "        : free\n",
    "        : free || outcome.status === 499\n"
  ],
  [
    "only the output is settled",
    "request/finish.ts",
    "settle(context, reservation, totalTokens(usage))",
    "settle(context, reservation, usage.tokensOut)"
  ],
  [
    "what a refused request holds is not given back",
    "request/finish.ts",
    "? cancel(context, reservation)",
    "? Effect.void"
  ],
  ["the answer does not wait for its row", "request/finish.ts", "    yield* Fiber.join(writing)\n", ""],
  ["the end of a request can be interrupted", "request/finish.ts", "  }, Effect.uninterruptible)", "  })"],
  [
    "the last frame goes out before the end of the request",
    "http/endRequest.ts",
    'Effect.map(finishAnswer(context, "freed"), () =>',
    'Effect.map(Effect.forkDetach(finishAnswer(context, "freed")), () =>'
  ],
  [
    "the row of a late answer is not corrected",
    "audit/postgres.ts",
    "recordLate(closing, row, late))",
    "Effect.asVoid(Effect.succeed(late)))"
  ],
  // What it holds
  [
    "a reservation can be interrupted before it is recorded",
    "request/reserve.ts",
    "  }, Effect.uninterruptible)",
    "  })"
  ],
  [
    "an extension is not counted",
    "gates/meter/memory/MemoryMeter.ts",
    "charge(counter, held - tokens, unused",
    "charge(counter, 0, unused"
  ],
  [
    "one slot too many",
    "gates/meter/memory/MemoryMeter.ts",
    "slots >= limits.concurrent",
    "slots > limits.concurrent"
  ],
  [
    "a heartbeat does not renew the lease",
    "request/LeaseKeeper.ts",
    "audit.progress(reservation.id, usage, hold.held), hold.renew)",
    "audit.progress(reservation.id, usage, hold.held), Effect.void)"
  ],
  [
    "a request begins on a lease that has ended",
    "request/openIntent.ts",
    "if (leases.lapsed(context.cost.leasedAt))",
    "if (leases.lapsed(Number.POSITIVE_INFINITY))"
  ],
  [
    "intents are renewed too seldom",
    "audit/postgres.ts",
    "later(spaced(leaseMs / 3)), renewal",
    "later(spaced(leaseMs * 3)), renewal"
  ],
  // Recovery
  [
    "requests closed by another gateway are not corrected",
    "audit/postgres.ts",
    "closeIntents(pg)(rows), (logged) => correct(rows, logged))",
    "closeIntents(pg)(rows), () => Effect.void)"
  ],
  [
    "dead requests are closed, and their counters not compared",
    "ledger/CrashRecovery.ts",
    "Effect.forEach(accounts, reconciler.compareSoon, { discard: true })",
    "Effect.void"
  ],
  [
    "a request is not ended in the ledger that is ended in the counters",
    "ledger/expiredHolds.ts",
    "if (open || account === undefined)",
    "if (account === undefined)"
  ],
  [
    "an intent that is not written is no reason to refuse",
    "audit/postgres.ts",
    "yield* Effect.mapError(opening.submit(intentRow(intent), openTimeoutMs), unavailable)",
    "yield* Effect.ignore(opening.submit(intentRow(intent), openTimeoutMs))"
  ],
  // Keys
  [
    "no second look at a key after argon2",
    "gates/keys/postgres.ts",
    "const after = yield* keys.confirmed(prefix)",
    "const after = found"
  ],
  [
    "the second look does not matter",
    "gates/keys/postgres.ts",
    "if (!after.state.usable || after.expired)",
    "if (after.expired)"
  ],
  [
    "a key is fresh for ten times as long",
    "gates/keys/KeyStateCache.ts",
    "now - entry.reading.confirmedAt <= freshnessMs",
    "now - entry.reading.confirmedAt <= 10 * freshnessMs"
  ],
  [
    "a key is fresh from the end of its read",
    "gates/keys/KeyStateCache.ts",
    "const { startedAt } = flight",
    "const startedAt = nowMs()"
  ],
  // Breaker
  [
    "the circuit opens one failure late",
    "backend/Circuit.ts",
    "this.#streak < this.#options.failures",
    "this.#streak <= this.#options.failures"
  ],
  [
    "a failed call is not reported to the circuit",
    "backend/CircuitBreaker.ts",
    "Effect.onError(restore(head), (cause) => report(Exit.failCause(cause)))",
    "restore(head)"
  ],
  [
    "an open circuit does not stay open",
    "backend/Circuit.ts",
    "    this.#probeFrom = now + this.#options.openMs\n    return",
    "    this.#probeFrom = now\n    return"
  ],
  // Queue
  [
    "a client that leaves the queue stays in it",
    "gates/queue/fromStore.ts",
    "restore(waitForTurn(local)).pipe(Effect.onError(() => leave(ticket.id)))",
    "restore(waitForTurn(local))"
  ],
  [
    "a beat forgets a request that has just come",
    "gates/queue/FairScheduler.ts",
    "entry.beat < replica.beats",
    "entry.beat <= replica.beats"
  ],
  [
    "a place is taken although the queue does not answer",
    "gates/queue/fromStore.ts",
    "          Effect.mapError(unavailable)\n",
    "          Effect.catch(() => Effect.succeed(new Full({ retryAfterS: -1 })))\n"
  ],
  // Defects that were there
  [
    "a request whose reservation was undone while it waited begins",
    "request/waitForPlace.ts",
    "if (hold.held < reserved.facts.reservation.held)",
    "if (hold.held < 0)"
  ]
]

const { values } = parseArgs({
  options: { seeds: { type: "string", default: "2000" }, only: { type: "string", default: "" } }
})
const root = path.resolve(import.meta.dirname, "../..")
const run = promisify(execFile)

const simulate = (cwd: string, more: ReadonlyArray<string> = []) =>
  Effect.promise(() =>
    run(process.execPath, ["lab/simulation/run.ts", "--seeds", `1..${values.seeds}`, ...more], {
      cwd,
      maxBuffer: 2 ** 26
    }).then(
      ({ stdout }) => stdout,
      (error: unknown) => (error instanceof Error && "stdout" in error ? String(error.stdout) : String(error))
    )
  )

const broken = /^seed (\d+), event (\d+): broken: "([^"]+)"/gm

/** `clean`: the seeds before the first that breaks without a defect. */
const tryOne = Effect.fnUntraced(function* ([what, file, text, instead]: Mutation, clean: number) {
  const copy = mkdtempSync(path.join(tmpdir(), "tollgate-mutation-"))
  for (const part of ["src", "lab/simulation", "package.json"])
    cpSync(path.join(root, part), path.join(copy, part), { recursive: true })
  symlinkSync(path.join(root, "node_modules"), path.join(copy, "node_modules"))
  const mutated = path.join(copy, "src", file)
  const source = readFileSync(mutated, "utf8")
  if (!source.includes(text)) {
    yield* Console.log(`- ${what}: its text is not in src/${file}`)
    return false
  }
  writeFileSync(
    mutated,
    source.replace(text, () => instead)
  )
  const output = yield* simulate(copy, ["--first"])
  rmSync(copy, { recursive: true })
  const [found] = output.matchAll(broken)
  const isFound = found !== undefined && Number(found[1]) <= clean
  yield* Console.log(
    `- ${what}: ${isFound ? `seed ${found[1]}, event ${found[2]}, "${found[3]}"` : "not found"}`
  )
  return isFound
})

const main = Effect.gen(function* () {
  const chosen = mutations.filter(([what]) => what.includes(values.only))
  const [first] = (yield* simulate(root, ["--first"])).matchAll(broken)
  const clean = first === undefined ? Number(values.seeds) : Number(first[1]) - 1
  const found = yield* Effect.forEach(chosen, (mutation) => tryOne(mutation, clean), { concurrency: 2 })
  yield* Console.log(`${found.filter(Boolean).length} of ${chosen.length} found within ${clean} clean seeds`)
  if (found.includes(false)) process.exitCode = 1
})

NodeRuntime.runMain(main)
