/**
 * Checks whether a secret matches the argon2id hash of its prefix, with bounded CPU.
 *
 * *Details* A few workers take jobs from one bounded queue (`VerifyQueue.ts`). Prefixes without recent wrong secrets go first
 * and have one more worker, so that the first use of a good key does not wait behind a flood of wrong ones. The result
 * "this secret matches (or does not match) this hash" is cached under a digest of both, salted at start: 1 µs for each
 * request. Another hash or another secret has another entry.
 *
 * *Gotchas* An unknown prefix takes as long as a known one: when a worker is idle, a random hash is verified; otherwise the
 * request waits as long as the queue would take, within the same bounds. Verifies of unknown prefixes get at most a third
 * of one worker's time, and those of suspect prefixes half of it, so that paying traffic keeps most of the CPU.
 */
import * as argon2 from "@node-rs/argon2"
import { Deferred, Effect, Exit, Random, type Scope } from "effect"
import { hash as digestOf, randomBytes } from "node:crypto"
import { availableParallelism } from "node:os"
import { Unavailable } from "../../domain/Errors.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import { makeLruCache } from "../../infra/LruCache.ts"
import { type Entry, type Line, VerifyQueue } from "./VerifyQueue.ts"

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
  readonly verify?: (hash: string, secret: string) => Effect.Effect<boolean, Unavailable>
  /** for tests: the hash that stands for an unknown prefix; default that of a random secret */
  readonly decoyHash?: Effect.Effect<string>
}

export interface SecretVerifier {
  /**
   * `hash` is undefined when no key has this prefix. The result is then false, after the time that a verify takes. `from` is
   * the client's address group: address groups take turns.
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

const matchTtlMs = 600_000
const mismatchTtlMs = 45_000
/** How long a wrong secret makes its prefix suspect. */
const suspectTtlMs = 600_000
/** Beyond this number of keys in use a known secret is verified again. An entry takes about 200 bytes. */
const matchCapacity = 50_000
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

const verifyArgon = (hash: string, secret: string): Effect.Effect<boolean, Unavailable> =>
  Effect.tryPromise({
    try: () => {
      const cost = argon2.parseOptions(hash)
      return cost.memoryCost <= maxMemoryCost &&
        cost.timeCost <= maxTimeCost &&
        cost.parallelism <= maxParallelism
        ? argon2.verify(hash, secret)
        : Promise.reject(new Error("the stored hash asks for more work than is allowed"))
    },
    catch: (cause) => new Unavailable({ gate: "KeyStore", cause })
  })

const randomHash = Effect.promise(() => hashSecret(randomBytes(32).toString("hex")))

const overloaded = (reason: string) =>
  new Unavailable({ gate: "KeyStore", retryAfterS: 1, crowded: true, cause: new Error(reason) })

export const makeSecretVerifier = Effect.fnUntraced(function* (
  options: SecretVerifierOptions
): Effect.fn.Return<SecretVerifier, never, Scope.Scope> {
  const nowMs = yield* makeMonotonicMs
  // A worker outlives the request that started it.
  const scope = yield* Effect.scope
  const cores = availableParallelism()
  // At most three, because libuv has four threads and other work needs one.
  const concurrency = options.concurrency ?? Math.min(3, Math.max(1, cores - 1))
  const maxWorkers = concurrency + (options.reserve ?? (cores > 1 ? 1 : 0))
  const maxWaitMs = options.maxWaitMs ?? 5000
  const verify = options.verify ?? verifyArgon

  const pepper = randomBytes(32).toString("hex")
  const decoyHash = yield* options.decoyHash ?? randomHash
  const random = yield* Random.Random
  /** until when a result holds, by digest */
  const matched = makeLruCache<number>(matchCapacity)
  const mismatched = makeLruCache<number>(mismatchCapacity)
  /** prefixes with a recent wrong secret, and until when they are suspect */
  const suspectUntil = makeLruCache<number>(suspectCapacity)
  /** digests of secrets that were turned away without being verified */
  const turnedAway = makeLruCache<true>(turnedAwayCapacity)
  const jobs = new Map<string, Job>()
  const queue = new VerifyQueue<Job>({
    perPrefix: options.perPrefix ?? 2,
    most: concurrency + (options.queue ?? 128),
    random: () => random.nextDoubleUnsafe()
  })
  let decoyNotBefore = 0
  let suspectNotBefore = 0
  let lastCostMs = 8
  let workers = 0

  const cacheResult = (matches: boolean, { digest }: Job) => {
    if (matches) matched.set(digest, nowMs() + matchTtlMs)
    else mismatched.set(digest, nowMs() + mismatchTtlMs)
  }

  const turnAway = ({ digest }: Job): Unavailable => {
    turnedAway.set(digest, true)
    return overloaded("too many verifies")
  }

  const forget = (job: Job) => {
    if (jobs.get(job.digest) === job) jobs.delete(job.digest)
  }

  const finish = (job: Job, exit: Exit.Exit<boolean, Unavailable>): Effect.Effect<void> =>
    Effect.suspend(() => {
      queue.leave(job)
      forget(job)
      if (Exit.isSuccess(exit)) {
        cacheResult(exit.value, job)
        turnedAway.delete(job.digest)
        if (!exit.value && !job.decoy) suspectUntil.set(job.prefix, nowMs() + suspectTtlMs)
      }
      return Effect.asVoid(Deferred.done(job.answer, exit))
    })

  const work = Effect.fnUntraced(function* (job: Job) {
    const startedAt = nowMs()
    // The waiting request has already failed.
    if (startedAt > job.deadline) {
      return yield* finish(job, Exit.fail(overloaded("waited too long for a verify")))
    }
    const exit = yield* Effect.exit(Effect.suspend(() => verify(job.hash, job.secret)))
    const endedAt = nowMs()
    lastCostMs = endedAt - startedAt
    if (job.suspect) suspectNotBefore = endedAt + lastCostMs
    if (job.decoy) decoyNotBefore = endedAt + 2 * lastCostMs
    yield* finish(job, job.decoy && Exit.isSuccess(exit) ? Exit.succeed(false) : exit)
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

  const startWorker = Effect.suspend(() => {
    if (workers >= maxWorkers || (workers >= concurrency && !queue.waits("clean"))) return Effect.void
    workers += 1
    return Effect.asVoid(Effect.forkIn(worker, scope, { startImmediately: true }))
  })

  /** Lets a job into the queue. Jobs that it replaces are turned away, or else the job itself. */
  const enter = Effect.fnUntraced(function* (job: Job, line: Line) {
    const { isIn, replaced } = queue.enter(job, line)
    for (const other of replaced) {
      forget(other)
      yield* Deferred.fail(other.answer, turnAway(other))
    }
    if (!isIn) return yield* turnAway(job)
  })

  const wait = (job: Job) =>
    Deferred.await(job.answer).pipe(
      Effect.timeoutOrElse({
        duration: maxWaitMs,
        orElse: () => Effect.fail(overloaded("waited too long for a verify"))
      })
    )

  const matches = Effect.fnUntraced(function* (
    secret: string,
    prefix: string,
    hash: string | undefined,
    from = ""
  ): Effect.fn.Return<boolean, Unavailable> {
    const target = hash ?? decoyHash
    const digest = digestOf("sha256", `${pepper} ${target} ${secret}`, "base64url")
    const now = nowMs()
    if ((matched.get(digest) ?? 0) > now) {
      // A key in use never queues again.
      matched.set(digest, now + matchTtlMs)
      return true
    }
    if ((mismatched.get(digest) ?? 0) > now) return false
    const running = jobs.get(digest)
    if (running !== undefined) return yield* wait(running)
    const job: Job = {
      secret,
      prefix,
      from,
      hash: target,
      digest,
      deadline: now + maxWaitMs,
      decoy: hash === undefined,
      suspect: hash === undefined || (suspectUntil.get(prefix) ?? 0) > now,
      answer: yield* Deferred.make<boolean, Unavailable>(),
      turnedAway: turnedAway.get(digest) === true
    }
    if (job.decoy && (queue.size >= concurrency || now < decoyNotBefore)) return yield* answerLater(job)
    yield* begin(job)
    return yield* wait(job)
  })

  /** Others may wait for the job as soon as it is known, so it has a worker then. */
  const begin = Effect.fnUntraced(function* (job: Job) {
    yield* enter(job, job.suspect ? "suspect" : "clean")
    jobs.set(job.digest, job)
    yield* startWorker
  }, Effect.uninterruptible)

  /**
   * Refuses an unknown prefix while the workers are busy, after the time that its turn would take. It also counts as an
   * entry of its prefix. So neither the time nor the bounds show that the prefix does not exist.
   */
  const answerLater = Effect.fnUntraced(function* (job: Job) {
    if (queue.isFull) return yield* turnAway(job)
    return yield* Effect.acquireUseRelease(
      enter(job, "asleep"),
      () => {
        const turnMs = lastCostMs * (1 + queue.size / concurrency) * (0.8 + 0.4 * random.nextDoubleUnsafe())
        const asleep = Effect.sync(() => {
          cacheResult(false, job)
          return false
        }).pipe(Effect.delay(Math.min(turnMs, maxWaitMs)))
        return Effect.raceFirst(asleep, Deferred.await(job.answer))
      },
      () => Effect.sync(() => queue.wake(job))
    )
  })

  return { matches }
})
