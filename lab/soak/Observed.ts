/** What the clients of a soak saw, judged at once: what must never be is kept in words. */
import { answerProblems } from "../../test/support/invariants/answers.ts"
import type { Private } from "../../test/support/invariants/leaks.ts"
import type { Answer } from "../../test/support/invariants/Witness.ts"

/** What a request was meant to meet when all is well. */
export type Kind = "good" | "limited" | "wrong key" | "no such model" | "blocked" | "bad body" | "revoked"

export interface Outcome {
  readonly kind: Kind
  readonly key: string
  readonly replica: 0 | 1
  /** 0: no answer */
  readonly status: number
  /** the error's type in a refusal */
  readonly type: string
  /** how the answer ended: whole, in words of its own, cut, or left by its client */
  readonly end: "whole" | "error" | "cut" | "left"
  /** performance.now() */
  readonly began: number
  readonly ended: number
}

/** Statuses each kind may have, beside 503 and what comes of a bad backend. */
const allowed: Readonly<Record<Kind, ReadonlyArray<number>>> = {
  good: [200, 502, 503],
  limited: [200, 429, 502, 503],
  "wrong key": [401, 503],
  "no such model": [403, 503],
  blocked: [403],
  "bad body": [400, 503],
  revoked: [200, 401, 502, 503]
}

interface Span {
  readonly from: number
  to: number
}

export class Observed {
  readonly outcomes = new Map<string, { count: number; longestMs: number }>()
  readonly answers: Array<Answer> = []
  readonly violations: Array<string> = []
  /** when each replica was killed, frozen or not up yet */
  readonly absent: readonly [Array<Span>, Array<Span>] = [[], []]
  /** when the backend was bad, or a replica that has yet to ask it for its models */
  readonly modelless: Array<Span> = []
  /** when anything was */
  readonly trouble: Array<Span> = []
  /** 502 and 503 while all was well, and of a replica whose neighbour alone was gone */
  readonly needless = { calm: 0, neighbour: 0 }
  total = 0
  /** the longest wait for a refusal of a replica that was there, ms */
  longestRefusalMs = 0
  /** for how long after its revocation a key was still served */
  readonly servedForMs: Array<number> = []
  readonly known: Private

  constructor(known: Private) {
    this.known = known
  }

  violation(text: string): void {
    if (this.violations.length < 1000) this.violations.push(text)
  }

  #during(spans: ReadonlyArray<Span>, { began, ended }: Outcome): boolean {
    // A moment for what was under way when it ended.
    return spans.some(({ from, to }) => began < to + 3000 && ended > from - 50)
  }

  add(outcome: Outcome, answer: Answer | undefined): void {
    const { end, kind, replica, status, type } = outcome
    this.total += 1
    const name = `${kind}: ${status} ${status === 200 ? end : type}`
    const known = this.outcomes.get(name) ?? { count: 0, longestMs: 0 }
    known.count += 1
    known.longestMs = Math.max(known.longestMs, Math.round(outcome.ended - outcome.began))
    this.outcomes.set(name, known)
    const gone = this.#during(this.absent[replica], outcome)
    if (status === 503 && !gone)
      this.longestRefusalMs = Math.max(this.longestRefusalMs, Math.round(outcome.ended - outcome.began))
    if (status === 0 || end === "cut") {
      if (!gone && end !== "left")
        this.violation(`${name}, key ${outcome.key}: no whole answer of a replica that was there`)
    } else if (!allowed[kind].includes(status)) {
      const unlisted = status === 403 && (gone || this.#during(this.modelless, outcome))
      if (!unlisted) this.violation(`${name}, key ${outcome.key}: not among ${allowed[kind].join(", ")}`)
    }
    if (status >= 502) {
      const alone = this.#during(this.absent[replica === 0 ? 1 : 0], outcome) && !gone
      if (!this.#during(this.trouble, outcome)) this.needless.calm += 1
      else if (alone) this.needless.neighbour += 1
    }
    if (answer === undefined) return
    for (const problem of answerProblems(answer, this.known)) this.violation(problem)
    const { headers, request } = answer
    const id = headers.get("x-request-id") ?? ""
    this.answers.push({ status, body: "", bodiless: false, request, headers: { get: () => id } })
  }
}
