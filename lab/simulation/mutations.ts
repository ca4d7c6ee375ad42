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
  [
    "the last frame goes out before the end of the request",
    "http/endRequest.ts",
    'Effect.map(finishAnswer(context, "freed"), () =>',
    'Effect.map(Effect.forkDetach(finishAnswer(context, "freed")), () =>'
  ],
  [
    "a settled request keeps its slot",
    "request/finish.ts",
    "context.cost.slotKept ? { keepSlot: true } : undefined",
    "{ keepSlot: true }"
  ],
  // What it holds
  [
    "one slot too many",
    "gates/meter/memory/Claimed.ts",
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
    "intents are renewed too seldom",
    "audit/postgres.ts",
    "later(spaced(leaseMs / 3)), renewal",
    "later(spaced(leaseMs * 3)), renewal"
  ],
  [
    "the lease of a request that waits is not renewed",
    "request/admit.ts",
    "        .keep(hold)\n",
    "        .keep({ ...hold, renew: Effect.void })\n"
  ],
  [
    "a request that gives its claims back keeps its tokens",
    "gates/meter/memory/MemoryMeter.ts",
    "charge(counter, -request.held, -unused)",
    "charge(counter, 0, 0)"
  ],
  // Recovery
  [
    "nobody closes the requests of dead processes",
    "ledger/CrashRecovery.ts",
    "const { closed, failed } = yield* closeOthers",
    "const { closed, failed } = { closed: 0, failed: new Map() }"
  ],
  [
    "counters are not compared with the ledger",
    "ledger/CounterReconciler.ts",
    '  yield* compareEvery("counter_comparison", everyS, compareChanged)\n',
    ""
  ],
  [
    "counters of tenants are not compared with the ledger",
    "ledger/CounterReconciler.ts",
    '  yield* compareEvery("tenant_counter_comparison", everyS, compareTenants)\n',
    ""
  ],
  [
    "history: what a process uses after its lease is charged as far as its last heartbeat",
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
  ["one place too many", "gates/queue/FairScheduler.ts", "this.running < places", "this.running <= places"],
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
    "          Effect.catch(() => Effect.succeed({ loaded: true }))\n"
  ],
  // Defects that were there
  [
    "history: a request whose reservation was undone while it waited begins",
    "request/admit.ts",
    "if (hold.held < reserved.facts.reservation.held)",
    "if (hold.held < 0)"
  ],
  [
    "history: a request that another gateway closed and its own refused is audited as aborted",
    "audit/postgres.ts",
    "insertAudit(pg)(rows), (logged) => correct(rows, logged))",
    "insertAudit(pg)(rows), () => Effect.void)"
  ],
  [
    "history: a request is admitted before the settlements of its key are delivered",
    "gates/limits/limiterFromMeter.ts",
    "Effect.andThen(settlements.flush(claims.account), reserving)",
    "reserving"
  ],
  // End users
  [
    "an end user may have any number of requests",
    "gates/meter/memory/MemoryMeter.ts",
    'this.#open(ofUser, now), limits: user.limits, scope: "user" as const',
    'this.#open(ofUser, now), limits: { ...user.limits, concurrent: 1e9 }, scope: "user" as const'
  ],
  [
    "the row does not name the account of its end user",
    "audit/rows.ts",
    "user_account: record.userAccount ?? null",
    "user_account: null"
  ],
  [
    "the intent does not name the account of its end user",
    "audit/rows.ts",
    "user_account: intent.reservation.claims.user?.id ?? null",
    "user_account: null"
  ],
  [
    "counters of end users are not compared with the ledger",
    "ledger/CounterReconciler.ts",
    "        if (user !== undefined) touch({ ...account, user: user.id })\n",
    ""
  ],
  [
    "what a dead request holds of its end user stays",
    "ledger/expiredHolds.ts",
    "user ?? account.user",
    "null"
  ],
  [
    "tokens of an end user are not counted",
    "gates/meter/memory/Totals.ts",
    "user: userAccountOf(claims) }",
    "user: undefined }"
  ],
  [
    "the name of an end user is not read",
    "http/authenticate.ts",
    "    context.claimEndUser(endUserHeaderOf(incoming, key.facts.caller))\n",
    ""
  ],
  // Those that need the most luck
  [
    "history: an answer whose row was late is audited as sent, and its client got a 503",
    "audit/postgres.ts",
    "recordLate(closing, row, late))",
    "Effect.asVoid(Effect.succeed(late)))"
  ],
  [
    "a reservation can be interrupted before it is recorded",
    "request/admit.ts",
    "  }, Effect.uninterruptible)",
    "  })"
  ],
  [
    "a request begins on a lease that has ended",
    "request/admit.ts",
    "if (leases.lapsed(context.cost.leasedAt))",
    "if (leases.lapsed(Number.POSITIVE_INFINITY))"
  ],
  [
    "a request is not ended in the ledger that is ended in the counters",
    "ledger/expiredHolds.ts",
    "if (open || account === undefined)",
    "if (account === undefined)"
  ],
  [
    "a key is fresh from the end of its read",
    "gates/keys/KeyStateCache.ts",
    "const { startedAt } = flight",
    "const startedAt = nowMs()"
  ]
]

const { values } = parseArgs({
  options: { seeds: { type: "string", default: "2000" }, only: { type: "string", default: "" } }
})
const root = path.resolve(import.meta.dirname, "../..")
const run = promisify(execFile)

const broken = /^seed (\d+), event (\d+): broken: "([^"]+)"/m

/** The first seed that breaks something. */
const play = (cwd: string, seeds: string) =>
  Effect.promise(() =>
    run(process.execPath, ["lab/simulation/run.ts", "--seeds", seeds, "--first"], {
      cwd,
      maxBuffer: 2 ** 26
    }).then(
      ({ stdout }) => stdout,
      (error: unknown) => (error instanceof Error && "stdout" in error ? String(error.stdout) : String(error))
    )
  ).pipe(Effect.map((output) => broken.exec(output) ?? []))

/** The first seed that breaks something with a defect and nothing without it. */
const findIn = Effect.fnUntraced(function* (copy: string) {
  for (let from = 1; from <= Number(values.seeds);) {
    const [, seed, event, invariant] = yield* play(copy, `${from}..${values.seeds}`)
    if (seed === undefined) return undefined
    const [without] = yield* play(root, `${seed}..${seed}`)
    if (without === undefined) return `seed ${seed}, event ${event}, "${invariant}"`
    from = Number(seed) + 1
  }
  return undefined
})

const tryOne = Effect.fnUntraced(function* ([what, file, text, instead]: Mutation) {
  const copy = mkdtempSync(path.join(tmpdir(), "tollgate-mutation-"))
  for (const part of ["src", "lab/simulation", "package.json"])
    cpSync(path.join(root, part), path.join(copy, part), { recursive: true })
  symlinkSync(path.join(root, "node_modules"), path.join(copy, "node_modules"))
  const mutated = path.join(copy, "src", file)
  const source = readFileSync(mutated, "utf8")
  writeFileSync(
    mutated,
    source.replace(text, () => instead)
  )
  const found = source.includes(text) ? yield* findIn(copy) : `its text is not in src/${file}`
  rmSync(copy, { recursive: true })
  yield* Console.log(`- ${what}: ${found ?? "not found"}`)
  return found?.startsWith("seed") === true
})

const main = Effect.gen(function* () {
  const chosen = mutations.filter(([what]) => values.only.split("|").some((part) => what.includes(part)))
  const found = yield* Effect.forEach(chosen, tryOne)
  yield* Console.log(`${found.filter(Boolean).length} of ${chosen.length} found within ${values.seeds} seeds`)
  if (found.includes(false)) process.exitCode = 1
})

NodeRuntime.runMain(main)
