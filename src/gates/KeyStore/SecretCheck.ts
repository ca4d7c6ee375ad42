/**
 * Whether a secret matches the argon2id hash of its prefix, without letting that question take the machine.
 *
 * *Details* A few workers take jobs from one bounded queue; a prefix has at most `perPrefix` jobs at a time, so
 * that one leaked prefix cannot keep the others out. What is remembered is "this secret matches (or does not
 * match) this hash", under a digest of the whole key salted at boot: another hash in the row, or another tail
 * behind the same prefix, finds nothing.
 *
 * *Gotchas* An unknown prefix costs what a known one costs: a verify against a hash of nothing when a worker is
 * idle, a wait of like length otherwise. Those verifies are held to a third of one worker's time.
 */
import * as argon2 from "@node-rs/argon2"
import { Clock, Deferred, Effect, Exit, Queue, type Scope } from "effect"
import { hash as digestOf, randomBytes } from "node:crypto"
import { availableParallelism } from "node:os"
import { Unavailable } from "../../domain/Errors.ts"
import { makeRecent } from "./Recent.ts"

export interface SecretCheckOptions {
  /** verifies at the same time; default: cores - 1, at least 1 */
  readonly concurrency?: number
  /** jobs waiting for a worker; default 128, which one worker clears in about a second */
  readonly queue?: number
  /** default 2000 */
  readonly maxWaitMs?: number
  /** jobs of one prefix, waiting or running; default 2 */
  readonly perPrefix?: number
  /** for tests; default argon2id */
  readonly verify?: (hash: string, secret: string) => Promise<boolean>
}

export interface SecretCheck {
  /** `hash` is undefined when no key has this prefix: the answer is false, after as long as it takes to say so. */
  matches(secret: string, prefix: string, hash: string | undefined): Effect.Effect<boolean, Unavailable>
}

interface Job {
  readonly secret: string
  readonly prefix: string
  readonly hash: string
  readonly digest: string
  readonly deadline: number
  readonly decoy: boolean
  readonly answer: Deferred.Deferred<boolean, Unavailable>
}

interface Remembered {
  readonly hash: string
  readonly until: number
}

const matchTtlMs = 600_000
const mismatchTtlMs = 45_000
const matchCapacity = 10_000
const mismatchCapacity = 1000

/** Cost of the hashes we make; a row may ask for a little more, never for the whole machine. */
export const argonCost = { memoryCost: 19_456, timeCost: 2, parallelism: 1 } as const
const mostMemoryCost = 65_536
const mostTimeCost = 4
const mostParallelism = 4

/** The argon2id hash that a key's row holds. */
export const hashSecret = (secret: string): Promise<string> => argon2.hash(secret, argonCost)

const verifyArgon = (hash: string, secret: string): Promise<boolean> => {
  const cost = argon2.parseOptions(hash)
  return cost.memoryCost <= mostMemoryCost &&
    cost.timeCost <= mostTimeCost &&
    cost.parallelism <= mostParallelism
    ? argon2.verify(hash, secret)
    : Promise.reject(new Error("the stored hash asks for more work than is allowed"))
}

const overloaded = (reason: string) =>
  new Unavailable({ gate: "KeyStore", retryAfterS: 1, cause: new Error(reason) })

export const makeSecretCheck = Effect.fnUntraced(function* (
  options: SecretCheckOptions
): Effect.fn.Return<SecretCheck, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const nowMs = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const concurrency = options.concurrency ?? Math.max(1, availableParallelism() - 1)
  const mostJobs = concurrency + (options.queue ?? 128)
  const maxWaitMs = options.maxWaitMs ?? 2000
  const perPrefix = options.perPrefix ?? 2
  const verify = options.verify ?? verifyArgon

  const pepper = randomBytes(32).toString("hex")
  const decoyHash = yield* Effect.promise(() => hashSecret(randomBytes(32).toString("hex")))
  const matched = makeRecent<Remembered>(matchCapacity)
  const mismatched = makeRecent<Remembered>(mismatchCapacity)
  const jobs = new Map<string, Job>()
  const jobsOfPrefix = new Map<string, number>()
  let load = 0
  let decoyNotBefore = 0
  let lastCostMs = 8
  const queue = yield* Queue.unbounded<Job>()

  const finish = (job: Job, exit: Exit.Exit<boolean, Unavailable>) => {
    load -= 1
    if (jobs.get(job.digest) === job) jobs.delete(job.digest)
    const left = (jobsOfPrefix.get(job.prefix) ?? 1) - 1
    if (left > 0) jobsOfPrefix.set(job.prefix, left)
    else jobsOfPrefix.delete(job.prefix)
    if (Exit.isSuccess(exit)) {
      const [memory, ttlMs] = exit.value ? [matched, matchTtlMs] : [mismatched, mismatchTtlMs]
      memory.set(job.digest, { hash: job.hash, until: nowMs() + ttlMs })
    }
    Deferred.doneUnsafe(job.answer, exit)
  }

  const work = Effect.fnUntraced(function* (job: Job) {
    const startedAt = nowMs()
    // Whoever waited for it has been told already.
    if (startedAt > job.deadline) return finish(job, Exit.fail(overloaded("waited too long for a verify")))
    const exit = yield* Effect.tryPromise({
      try: () => verify(job.hash, job.secret),
      catch: (cause) => new Unavailable({ gate: "KeyStore", cause })
    }).pipe(Effect.exit)
    const endedAt = nowMs()
    lastCostMs = endedAt - startedAt
    if (job.decoy) decoyNotBefore = endedAt + 2 * lastCostMs
    finish(job, job.decoy && Exit.isSuccess(exit) ? Exit.succeed(false) : exit)
  })

  yield* Effect.forEach(
    Array.from({ length: concurrency }),
    () => Queue.take(queue).pipe(Effect.flatMap(work), Effect.forever, Effect.forkScoped),
    { discard: true }
  )

  const wait = (job: Job) =>
    Deferred.await(job.answer).pipe(
      Effect.timeoutOrElse({
        duration: maxWaitMs,
        orElse: () => Effect.fail(overloaded("waited too long for a verify"))
      })
    )

  const matches: SecretCheck["matches"] = (secret, prefix, hash) =>
    Effect.suspend(() => {
      const digest = digestOf("sha256", pepper + secret, "base64url")
      const now = nowMs()
      const target = hash ?? decoyHash
      const match = matched.get(digest)
      if (match?.hash === target && match.until > now) {
        // True for as long as the hash stands, so a key in use need never queue again.
        matched.set(digest, { hash: target, until: now + matchTtlMs })
        return Effect.succeed(true)
      }
      const mismatch = mismatched.get(digest)
      if (mismatch?.hash === target && mismatch.until > now) return Effect.succeed(false)

      const running = jobs.get(digest)
      if (running?.hash === target) return wait(running)
      const ofPrefix = jobsOfPrefix.get(prefix) ?? 0
      // The same for unknown prefixes, so that an overload does not tell which prefixes exist.
      if (ofPrefix >= perPrefix) return Effect.fail(overloaded("too many verifies of one prefix"))
      if (load >= mostJobs) return Effect.fail(overloaded("too many verifies"))
      if (hash === undefined && (load >= concurrency || now < decoyNotBefore)) {
        return Effect.as(Effect.sleep(lastCostMs * (0.8 + 0.4 * Math.random())), false)
      }
      const job: Job = {
        secret,
        prefix,
        hash: target,
        digest,
        deadline: now + maxWaitMs,
        decoy: hash === undefined,
        answer: Deferred.makeUnsafe()
      }
      load += 1
      jobs.set(digest, job)
      jobsOfPrefix.set(prefix, ofPrefix + 1)
      Queue.offerUnsafe(queue, job)
      return wait(job)
    })

  return { matches }
})
