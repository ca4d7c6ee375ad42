/**
 * Whether a secret matches the argon2id hash of its prefix, without letting that question take the machine.
 *
 * *Details* A few workers take jobs from one bounded queue (`VerifyQueue.ts`). Prefixes that nobody has guessed at
 * lately go first and have a worker more: whoever uses a good key for the first time does not stand in line with a flood
 * of wrong ones. What is remembered is "this secret matches (or does not match) this hash", under a digest of the whole
 * key salted at boot: another hash in the row, or another tail behind the same prefix, finds nothing.
 *
 * *Gotchas* An unknown prefix costs what a known one costs: a verify against a hash of nothing when a worker is
 * idle, else a wait as long as the queue's, within the same bounds. Those verifies are held to a third of one
 * worker's time, and those of prefixes that are guessed at to half of it: the machine is for who pays.
 */
import * as argon2 from "@node-rs/argon2"
import { Deferred, Effect, Exit } from "effect"
import { hash as digestOf, randomBytes } from "node:crypto"
import { availableParallelism } from "node:os"
import { Unavailable } from "../../domain/Errors.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import { makeLruCache } from "./LruCache.ts"
import { type Entry, VerifyQueue } from "./VerifyQueue.ts"

export interface SecretVerifierOptions {
  /** verifies at the same time; default: cores - 1, 1 to 3 */
  readonly concurrency?: number
  /** verifies on top of these for prefixes that nobody guesses at; default 1 where there is a second core */
  readonly reserve?: number
  /** jobs waiting for a worker; default 128, which one worker clears in about a second */
  readonly queue?: number
  /** default 5000: better late than 503, and what waits is bounded by the queue */
  readonly maxWaitMs?: number
  /** jobs of one prefix, waiting or running; default 2 */
  readonly perPrefix?: number
  /** for tests; default argon2id */
  readonly verify?: (hash: string, secret: string) => Promise<boolean>
}

export interface SecretVerifier {
  /** `hash` is undefined when no key has this prefix: the answer is false, after as long as it takes to say so. */
  matches(secret: string, prefix: string, hash: string | undefined): Effect.Effect<boolean, Unavailable>
}

interface Job extends Entry {
  readonly secret: string
  readonly hash: string
  readonly digest: string
  readonly deadline: number
  readonly decoy: boolean
  /** its prefix does not exist, or somebody guesses at it */
  readonly suspect: boolean
  readonly answer: Deferred.Deferred<boolean, Unavailable>
}

interface Remembered {
  readonly hash: string
  until: number
}

const matchTtlMs = 600_000
const mismatchTtlMs = 45_000
/** How long a wrong secret makes its prefix one that is guessed at. */
const guessedTtlMs = 600_000
const matchCapacity = 10_000
const mismatchCapacity = 1000
const guessedCapacity = 10_000
/** secrets that were turned away unverified: more than a flood of 1500 a second sends in an owner's pause of a few seconds */
const turnedAwayCapacity = 10_000

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
  new Unavailable({ gate: "KeyStore", retryAfterS: 1, crowded: true, cause: new Error(reason) })

export const makeSecretVerifier = Effect.fnUntraced(function* (
  options: SecretVerifierOptions
): Effect.fn.Return<SecretVerifier> {
  const nowMs = yield* makeMonotonicMs
  // A worker is nobody's child: it must not end with the request that found it missing.
  const run = Effect.runForkWith(yield* Effect.context<never>())
  const cores = availableParallelism()
  // Three, because libuv has four threads and others need one too.
  const concurrency = options.concurrency ?? Math.min(3, Math.max(1, cores - 1))
  const most = concurrency + (options.reserve ?? (cores > 1 ? 1 : 0))
  const maxWaitMs = options.maxWaitMs ?? 5000
  const verify = options.verify ?? verifyArgon

  const pepper = randomBytes(32).toString("hex")
  const decoyHash = yield* Effect.promise(() => hashSecret(randomBytes(32).toString("hex")))
  const matched = makeLruCache<Remembered>(matchCapacity)
  const mismatched = makeLruCache<Remembered>(mismatchCapacity)
  /** prefixes with a wrong secret lately, and until when that counts */
  const guessed = makeLruCache<number>(guessedCapacity)
  /** digests of secrets that were turned away without being verified */
  const turnedAway = makeLruCache<true>(turnedAwayCapacity)
  const jobs = new Map<string, Job>()
  const queue = new VerifyQueue<Job>({
    perPrefix: options.perPrefix ?? 2,
    most: concurrency + (options.queue ?? 128)
  })
  let decoyNotBefore = 0
  let suspectNotBefore = 0
  let lastCostMs = 8
  let workers = 0

  const remember = (matches: boolean, { digest, hash }: Pick<Job, "digest" | "hash">) => {
    const [memory, ttlMs] = matches ? [matched, matchTtlMs] : [mismatched, mismatchTtlMs]
    memory.set(digest, { hash, until: nowMs() + ttlMs })
  }

  const turnAway = (digest: string): Unavailable => {
    turnedAway.set(digest, true)
    return overloaded("too many verifies")
  }

  const forget = (job: Job) => {
    if (jobs.get(job.digest) === job) jobs.delete(job.digest)
  }

  const finish = (job: Job, exit: Exit.Exit<boolean, Unavailable>) => {
    queue.leave(job)
    forget(job)
    if (Exit.isSuccess(exit)) {
      remember(exit.value, job)
      turnedAway.delete(job.digest)
      if (!exit.value && !job.decoy) guessed.set(job.prefix, nowMs() + guessedTtlMs)
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
    if (job.suspect) suspectNotBefore = endedAt + lastCostMs
    if (job.decoy) decoyNotBefore = endedAt + 2 * lastCostMs
    finish(job, job.decoy && Exit.isSuccess(exit) ? Exit.succeed(false) : exit)
  })

  /** One worker beyond `concurrency` is there for clean prefixes only. */
  const maySuspect = () => workers <= concurrency && queue.waits("suspect")
  const next = (): Job | undefined =>
    queue.take("clean") ?? (maySuspect() && nowMs() >= suspectNotBefore ? queue.take("suspect") : undefined)

  const worker = Effect.gen(function* () {
    for (;;) {
      const job = next()
      if (job !== undefined) yield* work(job)
      else if (maySuspect()) yield* Effect.sleep(Math.max(0, suspectNotBefore - nowMs()))
      else return
    }
  }).pipe(Effect.ensuring(Effect.sync(() => void (workers -= 1))))

  const hire = () => {
    if (workers >= most || (workers >= concurrency && !queue.waits("clean"))) return
    workers += 1
    run(worker)
  }

  const wait = (job: Job) =>
    Deferred.await(job.answer).pipe(
      Effect.timeoutOrElse({
        duration: maxWaitMs,
        orElse: () => Effect.fail(overloaded("waited too long for a verify"))
      })
    )

  const matches: SecretVerifier["matches"] = (secret, prefix, hash) =>
    Effect.suspend(() => {
      const digest = digestOf("sha256", pepper + secret, "base64url")
      const now = nowMs()
      const target = hash ?? decoyHash
      const match = matched.get(digest)
      if (match?.hash === target && match.until > now) {
        // True for as long as the hash stands, so a key in use need never queue again.
        match.until = now + matchTtlMs
        return Effect.succeed(true)
      }
      const mismatch = mismatched.get(digest)
      if (mismatch?.hash === target && mismatch.until > now) return Effect.succeed(false)

      const running = jobs.get(digest)
      if (running?.hash === target) return wait(running)
      const answer = Deferred.makeUnsafe<boolean, Unavailable>()
      const job: Job = {
        secret,
        prefix,
        hash: target,
        digest,
        deadline: now + maxWaitMs,
        decoy: hash === undefined,
        suspect: hash === undefined || (guessed.get(prefix) ?? 0) > now,
        answer,
        turnedAway: turnedAway.get(digest) === true,
        evicted: () => {
          forget(job)
          Deferred.doneUnsafe(answer, Exit.fail(turnAway(digest)))
        }
      }
      if (hash === undefined && (queue.size >= concurrency || now < decoyNotBefore)) return pretend(job)
      if (!queue.enter(job, job.suspect ? "suspect" : "clean")) return Effect.fail(turnAway(digest))
      jobs.set(digest, job)
      hire()
      return wait(job)
    })

  /**
   * An unknown prefix while the workers are busy: refused after as long as its turn would take, and as an entry of its
   * prefix, so that neither tells that the prefix does not exist.
   */
  const pretend = (job: Job): Effect.Effect<boolean, Unavailable> => {
    if (queue.isFull || !queue.enter(job, "asleep")) return Effect.fail(turnAway(job.digest))
    const turnMs = lastCostMs * (1 + queue.size / concurrency) * (0.8 + 0.4 * Math.random())
    const asleep = Effect.sync(() => {
      remember(false, job)
      return false
    }).pipe(Effect.delay(Math.min(turnMs, maxWaitMs)))
    return Effect.raceFirst(asleep, Deferred.await(job.answer)).pipe(
      Effect.ensuring(Effect.sync(() => queue.wake(job)))
    )
  }

  return { matches }
})
