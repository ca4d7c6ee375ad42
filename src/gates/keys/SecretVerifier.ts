/**
 * Checks whether a secret matches the argon2id hash of its prefix, with bounded CPU.
 *
 * Two lines wait for argon2: prefixes without recent wrong secrets, and suspect ones, of which one is verified at a
 * time and for half of the time. So the first use of a good key does not wait behind a flood of wrong ones. Address groups
 * take turns, so the owner of a prefix that another address floods is verified at the first try. The result
 * "this secret matches (or does not match) this hash" is cached under a digest of both, salted at start: 1 µs for each request.
 */
import * as argon2 from "@node-rs/argon2"
import { Deferred, Effect, Exit, PartitionedSemaphore, Random, type Scope } from "effect"
import { hash as digestOf, randomBytes } from "node:crypto"
import { availableParallelism } from "node:os"
import { Unavailable } from "../../domain/Errors.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import { makeLruCache } from "../../infra/LruCache.ts"

export interface SecretVerifierOptions {
  /** verifies of prefixes that are not suspect at the same time; default: one for each core, at most 3 */
  readonly concurrency?: number
  /** places in each line, those in work included; default 128, which one worker clears in about a second */
  readonly places?: number
  /** default 5000: a late answer is better than a 503, and the queue bounds how many wait */
  readonly maxWaitMs?: number
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

/** Unknown prefixes are suspect, or they sleep. */
type Line = "clean" | "suspect" | "asleep"

interface Job {
  readonly secret: string
  readonly prefix: string
  /** the client's address group (`http/server/addresses.ts`) */
  readonly from: string
  readonly hash: string
  readonly digest: string
  readonly deadline: number
  /** its prefix does not exist */
  readonly decoy: boolean
  readonly line: Line
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
/** Places of an address group for one prefix, whether or not there is such a key. */
const maxOfPrefix = 2
/** Jobs of all lines. Only a flood of unknown prefixes reaches it. */
const maxJobs = 4096

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
  // At most three beside a suspect one, because libuv has four threads.
  const concurrency = options.concurrency ?? Math.min(3, availableParallelism())
  const places = options.places ?? 128
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
  /** those that wait, sleep or are in work, by digest */
  const jobs = new Map<string, Job>()
  const turns = {
    clean: yield* PartitionedSemaphore.make<string>({ permits: concurrency }),
    suspect: yield* PartitionedSemaphore.make<string>({ permits: 1 })
  }
  let lastCostMs = 8

  const cacheResult = (matches: boolean, { digest }: Job) => {
    if (matches) matched.set(digest, nowMs() + matchTtlMs)
    else mismatched.set(digest, nowMs() + mismatchTtlMs)
  }

  const inLine = (line: Line) => [...jobs.values()].filter((job) => job.line === line)

  /**
   * An unknown prefix takes as long as a known one: a random hash is verified when no other verify waits for that; otherwise the
   * request sleeps as long as a turn takes, within the same bounds.
   */
  const lineOfUnknown = (): Line =>
    inLine("suspect").length > 0 || inLine("clean").length >= concurrency ? "asleep" : "suspect"

  /**
   * A group may have as many places of a line as are left for all others: one group alone gets half, and there is a place for the next
   * group.
   */
  const hasPlace = ({ from, line, prefix }: Job): boolean => {
    // An unknown prefix finds a place where a known one would.
    const others = inLine(line === "asleep" ? "suspect" : line)
    const own = [...jobs.values()].filter((job) => job.from === from && job.prefix === prefix)
    return (
      own.length < maxOfPrefix &&
      others.filter((job) => job.from === from).length < places - others.length &&
      jobs.size < maxJobs
    )
  }

  const finish = (job: Job, exit: Exit.Exit<boolean, Unavailable>): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (Exit.isSuccess(exit)) {
        cacheResult(exit.value, job)
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
    lastCostMs = nowMs() - startedAt
    yield* finish(job, job.decoy && Exit.isSuccess(exit) ? Exit.succeed(false) : exit)
    // A guess at a key takes half of the time, one at nothing a third.
    if (job.line === "suspect") yield* Effect.sleep(job.decoy ? 2 * lastCostMs : lastCostMs)
  })

  const asleep = (job: Job) =>
    Effect.suspend(() => {
      const turnMs = lastCostMs * (1 + inLine("clean").length / concurrency)
      const ms = Math.min(turnMs * (0.8 + 0.4 * random.nextDoubleUnsafe()), maxWaitMs)
      return Effect.delay(finish(job, Exit.succeed(false)), ms)
    })

  /** Others may wait for the job as soon as it is known, so it runs then. */
  const begin = Effect.fnUntraced(function* (job: Job) {
    if (!hasPlace(job)) return yield* overloaded("too many verifies")
    jobs.set(job.digest, job)
    const run = job.line === "asleep" ? asleep(job) : turns[job.line].withPermit(job.from)(work(job))
    const forget = Effect.sync(() => jobs.delete(job.digest))
    yield* Effect.forkIn(Effect.ensuring(run, forget), scope, { startImmediately: true })
  }, Effect.uninterruptible)

  const wait = (job: Job) =>
    Deferred.await(job.answer).pipe(
      Effect.timeoutOrElse({
        duration: maxWaitMs,
        orElse: () => Effect.fail(overloaded("waited too long for a verify"))
      })
    )

  const matches = (
    secret: string,
    prefix: string,
    hash: string | undefined,
    from = ""
  ): Effect.Effect<boolean, Unavailable> => {
    const target = hash ?? decoyHash
    const digest = digestOf("sha256", `${pepper} ${target} ${secret}`, "base64url")
    const now = nowMs()
    if ((matched.get(digest) ?? 0) > now) {
      // A key in use never queues again.
      matched.set(digest, now + matchTtlMs)
      return Effect.succeed(true)
    }
    if ((mismatched.get(digest) ?? 0) > now) return Effect.succeed(false)
    const running = jobs.get(digest)
    if (running !== undefined) return wait(running)
    const job: Job = {
      secret,
      prefix,
      from,
      hash: target,
      digest,
      deadline: now + maxWaitMs,
      decoy: hash === undefined,
      line:
        hash === undefined ? lineOfUnknown() : (suspectUntil.get(prefix) ?? 0) > now ? "suspect" : "clean",
      answer: Deferred.makeUnsafe<boolean, Unavailable>()
    }
    return Effect.andThen(begin(job), wait(job))
  }

  return { matches }
})
