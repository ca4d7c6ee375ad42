/** What each account has in its last 60 seconds, by what the counters were told. It never has more than the counters have. */
import type { EffectiveLimits } from "../../src/domain/Limits.ts"
import { accountsOf, type Claims, type Reservation } from "../../src/domain/Reservation.ts"
import { ownerName } from "../../test/support/seeded/Redis.ts"

const minuteMs = 60_000

interface Request {
  readonly owners: ReadonlyMap<string, EffectiveLimits>
  readonly at: number
  held: number
  isOpen: boolean
  /** whether it counts as a request */
  isCounted: boolean
  /** when it used how many tokens */
  used: Array<{ readonly at: number; readonly tokens: number }>
}

const ownersOf = (claims: Claims): ReadonlyMap<string, EffectiveLimits> =>
  new Map(accountsOf(claims).map(({ account, limits }) => [ownerName(account), limits]))

const sumOf = ({ used }: Request): number => used.reduce((sum, { tokens }) => sum + tokens, 0)

/** Sets what a request used. Too much is taken back where it was used first. */
const note = (request: Request, used: number, at: number): void => {
  const more = used - sumOf(request)
  if (more > 0) return void request.used.push({ at, tokens: more })
  let excess = -more
  request.used = request.used.map((part) => {
    const taken = Math.min(excess, part.tokens)
    excess -= taken
    return { at: part.at, tokens: part.tokens - taken }
  })
}

export class Minutes {
  readonly #requests = new Map<string, Request>()

  #of(owner: string): ReadonlyArray<Request> {
    return [...this.#requests.values()].filter(({ owners }) => owners.has(owner))
  }

  #requestsOf(owner: string, now: number): number {
    return this.#of(owner).filter(({ at, isCounted }) => isCounted && at > now - minuteMs).length
  }

  /** Tokens used, and those held. */
  #tokensOf(owner: string, now: number): number {
    return this.#of(owner).reduce((sum, request) => {
      const recent = request.used.reduce((of, { at, tokens }) => of + (at > now - minuteMs ? tokens : 0), 0)
      return sum + recent + (request.isOpen ? Math.max(0, request.held - sumOf(request)) : 0)
    }, 0)
  }

  /** Returns what was full before it. */
  reserved({ claims, held, id }: Reservation, now: number): string | undefined {
    if (this.#requests.has(id)) return undefined
    const owners = ownersOf(claims)
    const full = [...owners].flatMap(([owner, { rpm, tpm }]) => {
      const [requests, tokens] = [this.#requestsOf(owner, now), this.#tokensOf(owner, now)]
      return [
        ...(requests >= rpm ? [`${owner} had ${requests} of ${rpm} requests`] : []),
        ...(tokens >= tpm ? [`${owner} had ${tokens} of ${tpm} tokens`] : [])
      ]
    })
    this.#requests.set(id, { owners, at: now, held, isOpen: true, isCounted: true, used: [] })
    return full[0]
  }

  /** Returns what has too much by what the request holds more. */
  renewed(id: string, used: number, held: number, now: number): string | undefined {
    const request = this.#requests.get(id)
    if (request?.isOpen !== true) return undefined
    const isMore = held > Math.max(request.held, used)
    note(request, Math.max(used, sumOf(request)), now)
    request.held = held
    if (!isMore) return undefined
    const full = [...request.owners].find(([owner, { tpm }]) => this.#tokensOf(owner, now) > tpm)
    return full && `${full[0]} has ${this.#tokensOf(full[0], now)} of ${full[1].tpm} tokens`
  }

  /** `used`: undefined when the request does not count. */
  ended(id: string, used: number | undefined, now: number): void {
    const request = this.#requests.get(id)
    if (request?.isOpen !== true) return
    request.isOpen = false
    request.isCounted = used !== undefined
    note(request, used ?? 0, now)
  }
}
