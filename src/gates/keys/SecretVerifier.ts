/**
 * Checks whether a secret matches the argon2id hash of its prefix, with bounded CPU.
 *
 * *Details* A few workers take jobs from one bounded queue (`VerifyQueue.ts`). Prefixes without recent wrong secrets go first
 * and have one more worker, so that the first use of a good key does not wait behind a flood of wrong ones. The result
 * "this secret matches (or does not match) this hash" is cached under a digest of the whole key, salted at start. Another
 * hash or another secret has another entry.
 *
 * *Gotchas* An unknown prefix takes as long as a known one: when a worker is idle, a random hash is verified; otherwise the
 * request waits as long as the queue would take, within the same bounds. Verifies of unknown prefixes get at most a third
 * of one worker's time, and those of suspect prefixes half of it, so that paying traffic keeps most of the CPU.
 */
import * as argon2 from "@node-rs/argon2"
import { Deferred, Effect, Exit } from "effect"
import { hash as digestOf, randomBytes } from "node:crypto"
import { availableParallelism } from "node:os"
import { Unavailable } from "../../domain/Errors.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import { makeLruCache } from "../../infra/LruCache.ts"
import { type Entry, VerifyQueue } from "./VerifyQueue.ts"

export interface SecretVerifierOptions {
  /** verifies at the same time; default: cores - 1, 1 to 3 */
  readonly concurrency?: number
  /** further verifies for prefixes that are not suspect; default 1 when there is a second core */
  readonly reserve?: number
  /** jobs waiting for a worker; default 128, which one worker clears in about a second */
  readonly queue?: number
  /** default 5000: a late answer is better than a 503, and the queue bounds how many wait */
  readonly maxWaitMs?: number
  /** jobs of one prefix, waiting or running; default 2 */
  readonly perPrefix?: number
  /** for tests; default argon2id */
  readonly verify?: (hash: string, secret: string) => Promise<boolean>
}

export interface SecretVerifier {
  /**
   * `hash` is undefined when no key has this prefix. The result is then false, after the time that a verify takes. `from` is
   * the client's address group: address groups take turns. A known result is there at once, without a step.
   */
  matches(
    secret: string,
    prefix: string,
    hash: string | undefined,
    from?: string
  ): Effect.Effect<boolean, Unavailable>
}

interface Job extends Entry {
  readonly secret: string
  readonly hash: string
  readonly digest: string
  readonly deadline: number
  readonly decoy: boolean
  /** its prefix does not exist, or had wrong secrets recently */
  readonly suspect: boolean
  readonly answer: Deferred.Deferred<boolean, Unavailable>
}

interface CachedResult {
  readonly hash: string
  until: number
}

const matchTtlMs = 600_000
const mismatchTtlMs = 45_000
/** How long a wrong secret makes its prefix suspect. */
const suspectTtlMs = 600_000
const matchCapacity = 10_000
const mismatchCapacity = 1000
const suspectCapacity = 10_000
/** secrets that were turned away unverified: more than a flood of 1500 a second sends while an owner pauses for a few seconds */
const turnedAwayCapacity = 10_000

/** Cost of the hashes we make. A stored hash may cost a little more, up to the bounds below. */
export const argonCost = { memoryCost: 19_456, timeCost: 2, parallelism: 1 } as const
const maxMemoryCost = 65_536
const maxTimeCost = 4
const maxParallelism = 4

/** The argon2id hash that is stored for a key. */
export const hashSecret = (secret: string): Promise<string> => argon2.hash(secret, argonCost)

const verifyArgon = (hash: string, secret: string): Promise<boolean> => {
  const cost = argon2.parseOptions(hash)
  return cost.memoryCost <= maxMemoryCost &&
    cost.timeCost <= maxTimeCost &&
    cost.parallelism <= maxParallelism
    ? argon2.verify(hash, secret)
    : Promise.reject(new Error("the stored hash asks for more work than is allowed"))
}

const overloaded = (reason: string) =>
  new Unavailable({ gate: "KeyStore", retryAfterS: 1, crowded: true, cause: new Error(reason) })

export const makeSecretVerifier = Effect.fnUntraced(function* (
  options: SecretVerifierOptions
): Effect.fn.Return<SecretVerifier> {
  const nowMs = yield* makeMonotonicMs
  // Detached: a worker must outlive the request that started it.
  const run = Effect.runForkWith(yield* Effect.context<never>())
  const cores = availableParallelism()
  // At most three, because libuv has four threads and other work needs one.
  const concurrency = options.concurrency ?? Math.min(3, Math.max(1, cores - 1))
  const maxWorkers = concurrency + (options.reserve ?? (cores > 1 ? 1 : 0))
  const maxWaitMs = options.maxWaitMs ?? 5000
  const verify = options.verify ?? verifyArgon

  const pepper = randomBytes(32).toString("hex")
  const decoyHash = yield* Effect.promise(() => hashSecret(randomBytes(32).toString("hex")))
  const matched = makeLruCache<CachedResult>(matchCapacity)
  const mismatched = makeLruCache<CachedResult>(mismatchCapacity)
  /** prefixes with a recent wrong secret, and until when they are suspect */
  const suspectUntil = makeLruCache<number>(suspectCapacity)
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

  const cacheResult = (matches: boolean, { digest, hash }: Pick<Job, "digest" | "hash">) => {
    const [cache, ttlMs] = matches ? [matched, matchTtlMs] : [mismatched, mismatchTtlMs]
    cache.set(digest, { hash, until: nowMs() + ttlMs })
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
      cacheResult(exit.value, job)
      turnedAway.delete(job.digest)
      if (!exit.value && !job.decoy) suspectUntil.set(job.prefix, nowMs() + suspectTtlMs)
    }
    Deferred.doneUnsafe(job.answer, exit)
  }

  const work = Effect.fnUntraced(function* (job: Job) {
    const startedAt = nowMs()
    // The waiting request has already failed.
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

  /** Workers beyond `concurrency` take clean prefixes only. */
  const mayTakeSuspect = () => workers <= concurrency && queue.waits("suspect")
  const next = (): Job | undefined =>
    queue.take("clean") ??
    (mayTakeSuspect() && nowMs() >= suspectNotBefore ? queue.take("suspect") : undefined)

  const worker = Effect.gen(function* () {
    for (;;) {
      const job = next()
      if (job !== undefined) yield* work(job)
      else if (mayTakeSuspect()) yield* Effect.sleep(Math.max(0, suspectNotBefore - nowMs()))
      else return
    }
  }).pipe(Effect.ensuring(Effect.sync(() => void (workers -= 1))))

  const startWorker = () => {
    if (workers >= maxWorkers || (workers >= concurrency && !queue.waits("clean"))) return
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

  const matches: SecretVerifier["matches"] = (secret, prefix, hash, from = "") => {
    const digest = digestOf("sha256", pepper + secret, "base64url")
    const now = nowMs()
    const target = hash ?? decoyHash
    const match = matched.get(digest)
    if (match?.hash === target && match.until > now) {
      // The result holds while the hash is the same, so a key in use never queues again.
      match.until = now + matchTtlMs
      return Effect.succeed(true)
    }
    const mismatch = mismatched.get(digest)
    if (mismatch?.hash === target && mismatch.until > now) return Effect.succeed(false)
    return verified(secret, prefix, hash, target, digest, from)
  }

  /** Verifies a secret without a known result, or waits for the verify of the same one. */
  const verified = (
    secret: string,
    prefix: string,
    hash: string | undefined,
    target: string,
    digest: string,
    from: string
  ): Effect.Effect<boolean, Unavailable> =>
    Effect.suspend(() => {
      const now = nowMs()
      const running = jobs.get(digest)
      if (running?.hash === target) return wait(running)
      const answer = Deferred.makeUnsafe<boolean, Unavailable>()
      const job: Job = {
        secret,
        prefix,
        from,
        hash: target,
        digest,
        deadline: now + maxWaitMs,
        decoy: hash === undefined,
        suspect: hash === undefined || (suspectUntil.get(prefix) ?? 0) > now,
        answer,
        turnedAway: turnedAway.get(digest) === true,
        evicted: () => {
          forget(job)
          Deferred.doneUnsafe(answer, Exit.fail(turnAway(digest)))
        }
      }
      if (hash === undefined && (queue.size >= concurrency || now < decoyNotBefore)) return answerLater(job)
      if (!queue.enter(job, job.suspect ? "suspect" : "clean")) return Effect.fail(turnAway(digest))
      jobs.set(digest, job)
      startWorker()
      return wait(job)
    })

  /**
   * Refuses an unknown prefix while the workers are busy, after the time that its turn would take. It also counts as an
   * entry of its prefix. So neither the time nor the bounds show that the prefix does not exist.
   */
  const answerLater = (job: Job): Effect.Effect<boolean, Unavailable> => {
    if (queue.isFull || !queue.enter(job, "asleep")) return Effect.fail(turnAway(job.digest))
    const turnMs = lastCostMs * (1 + queue.size / concurrency) * (0.8 + 0.4 * Math.random())
    const asleep = Effect.sync(() => {
      cacheResult(false, job)
      return false
    }).pipe(Effect.delay(Math.min(turnMs, maxWaitMs)))
    return Effect.raceFirst(asleep, Deferred.await(job.answer)).pipe(
      Effect.ensuring(Effect.sync(() => queue.wake(job)))
    )
  }

  return { matches }
})
