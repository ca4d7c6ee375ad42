/**
 * The shares of two tenants that both wait, as their queue charges them (`QueueStore.ts`, "Order"): as much as the last requests
 * used, and in the end what the request used. Start-time fair queueing on several servers keeps them within a bound.
 */
import { Average } from "../../src/gates/queue/LoadedModels.ts"
import type { Full, Granted, Message, Ticket, Waiting } from "../../src/gates/queue/QueueStore.ts"

interface Request {
  readonly ticket: Ticket
  /** undefined: it waits */
  charged: number | undefined
}

export class Fairness {
  readonly #places: number
  readonly #requests = new Map<string, Request>()
  readonly #used = new Average(1)
  /** the most tokens that a request was charged */
  #largest = 1
  /** how far the tenant that is first by name is ahead, in tokens by weight, since both wait; and how far it was */
  #lead = { now: 0, least: 0, most: 0 }
  /** how far the shares were apart at most, in parts of the bound */
  worst = 0

  constructor(places: number) {
    this.#places = places
  }

  queued(ticket: Ticket, answer: Granted | Waiting | Full): void {
    if (answer._tag === "Full") return
    if (!this.#requests.has(ticket.id)) this.#requests.set(ticket.id, { ticket, charged: undefined })
    if (answer._tag === "Granted") this.#start(ticket.id)
  }

  told(messages: ReadonlyArray<Message>): void {
    for (const { id, retryAfterS } of messages)
      if (retryAfterS === undefined) this.#start(id)
      else this.gone(id, 0)
  }

  /** `used`: undefined when it left. What fails without tokens stays charged. */
  gone(id: string, used: number | undefined): void {
    const request = this.#requests.get(id)
    this.#requests.delete(id)
    if (request?.charged !== undefined && used !== 0) {
      if (used !== undefined) this.#used.add(used)
      this.#largest = Math.max(this.#largest, used ?? 0)
      this.#charge(request.ticket, (used ?? 0) - request.charged)
    }
    this.#rest()
  }

  #start(id: string): void {
    const request = this.#requests.get(id)
    if (request === undefined || request.charged !== undefined) return
    request.charged = Math.min(request.ticket.cost, this.#used.value)
    this.#largest = Math.max(this.#largest, request.charged)
    this.#charge(request.ticket, request.charged)
    this.#rest()
  }

  get #waiting(): ReadonlyMap<string, number> {
    const waiting = [...this.#requests.values()].filter(({ charged }) => charged === undefined)
    return new Map(waiting.map(({ ticket: { tenant, weight } }) => [tenant, weight]))
  }

  /** A tenant without requests that wait has no share to get. */
  #rest(): void {
    if (this.#waiting.size < 2) this.#lead = { now: 0, least: 0, most: 0 }
  }

  #charge({ tenant, weight }: Ticket, tokens: number): void {
    const weights = new Map([...this.#waiting, [tenant, weight]])
    if (weights.size < 2) return
    const [first] = [...weights.keys()].toSorted()
    const now = this.#lead.now + ((tenant === first ? 1 : -1) * tokens) / weight
    this.#lead = { now, least: Math.min(now, this.#lead.least), most: Math.max(now, this.#lead.most) }
    // Of each place one request may be charged later, or get back what it was charged: so the lighter weight counts.
    const bound = ((2 * this.#places + 1) * this.#largest) / Math.min(...weights.values())
    this.worst = Math.max(this.worst, (this.#lead.most - this.#lead.least) / bound)
  }
}
