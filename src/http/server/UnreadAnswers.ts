/**
 * How much memory the answers take that wait for their clients to read them, by key and in all.
 *
 * Two rules bound it. A key whose waiting answers take more than what is left of the whole begins no other request (429)
 * until they have been read: one key alone gets half, two get a third each, and something is always left for the others.
 * When all of them together take more than `UNREAD_ANSWERS_MAX_BYTES`, answers are cut until they fit: first the one with
 * the largest product of its bytes and the time in which its client took none of them. A client that reads is hardly ever
 * the one, nor is a small answer. The only answer that waits is never cut, so the largest answer can be sent.
 */
import { Context, Effect, Layer } from "effect"
import { Metrics } from "../../observability/Metrics.ts"
import type { Caller } from "../../domain/Caller.ts"
import { RateLimited } from "../../domain/Errors.ts"
import { makeMonotonicMs } from "../../infra/time.ts"

export interface UnreadOptions {
  /** `UNREAD_ANSWERS_MAX_BYTES` */
  readonly mostBytes: number
}

/** One answer, as far as its client has not read it. */
export interface Waiting {
  /** From now on `bytes` are kept for the client; to be called again whenever it has taken some. 0: none are. */
  hold(bytes: number): void
}

interface Answer {
  readonly key: string
  readonly cut: () => void
  bytes: number
  /** when its client last took bytes, in monotonic ms */
  since: number
}

/** The bookkeeping, on any clock. */
export class Unread {
  readonly #mostBytes: number
  readonly #nowMs: () => number
  readonly #waiting = new Set<Answer>()
  readonly #byKey = new Map<string, number>()
  #bytes = 0
  #cuts = 0

  constructor(mostBytes: number, nowMs: () => number) {
    this.#mostBytes = mostBytes
    this.#nowMs = nowMs
  }

  get bytes(): number {
    return this.#bytes
  }

  /** answers that were cut */
  get cuts(): number {
    return this.#cuts
  }

  /** Whether the waiting answers of `key` leave it no room for another. */
  isFull(key: string): boolean {
    const own = this.#byKey.get(key)
    return own !== undefined && own > this.#mostBytes - this.#bytes
  }

  answer(key: string, cut: () => void): Waiting {
    const answer: Answer = { key, cut, bytes: 0, since: 0 }
    return { hold: (bytes) => this.#hold(answer, bytes) }
  }

  #hold(answer: Answer, bytes: number): void {
    this.#change(answer, bytes)
    answer.since = this.#nowMs()
    while (this.#bytes > this.#mostBytes && this.#waiting.size > 1) this.#cutOne(this.#nowMs())
  }

  #cutOne(now: number): void {
    let worst: Answer | undefined
    let most = -1
    for (const answer of this.#waiting) {
      const cost = answer.bytes * (now - answer.since)
      if (cost > most) [worst, most] = [answer, cost]
    }
    if (worst === undefined) return
    this.#change(worst, 0)
    this.#cuts += 1
    worst.cut()
  }

  #change(answer: Answer, bytes: number): void {
    const more = bytes - answer.bytes
    if (bytes === 0) this.#waiting.delete(answer)
    else this.#waiting.add(answer)
    if (more === 0) return
    answer.bytes = bytes
    this.#bytes += more
    const own = (this.#byKey.get(answer.key) ?? 0) + more
    if (own === 0) this.#byKey.delete(answer.key)
    else this.#byKey.set(answer.key, own)
  }
}

export class UnreadAnswers extends Context.Service<
  UnreadAnswers,
  {
    /** An answer to `caller`; `cut` closes its connection. */
    answer(caller: Caller | undefined, cut: () => void): Waiting
    /** Fails when too much waits for this caller already. Nothing is consumed. */
    room(caller: Caller): Effect.Effect<void, RateLimited>
  }
>()("tollgate/http/server/UnreadAnswers") {
  static readonly layer = (options: UnreadOptions): Layer.Layer<UnreadAnswers, never, Metrics> =>
    Layer.effect(
      UnreadAnswers,
      Effect.gen(function* () {
        const metrics = yield* Metrics
        const unread = new Unread(options.mostBytes, yield* makeMonotonicMs)
        yield* metrics.probe({
          name: "tollgate_unread_answer_bytes",
          help: "Bytes of answers that wait in this process for their clients to read them",
          read: Effect.sync(() => unread.bytes)
        })
        yield* metrics.probe({
          name: "tollgate_unread_answers_cut",
          help: "Answers cut since the start, because unread ones took more than UNREAD_ANSWERS_MAX_BYTES",
          read: Effect.sync(() => unread.cuts)
        })
        return {
          answer: (caller, cut) => unread.answer(caller?.keyId ?? "", cut),
          room: ({ keyId, limits }) =>
            unread.isFull(keyId)
              ? new RateLimited({ limit: "concurrency", value: limits.concurrent, retryAfterS: 1 })
              : Effect.void
        }
      })
    )
}
