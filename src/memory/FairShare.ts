/**
 * Divides a memory among tenants and their keys: an owner may hold at most as much as is left for all others. One tenant alone
 * gets half, two get a third each, and something is always left for the next one. The same holds for the keys of a tenant,
 * within what is left for it.
 */
export interface Owner {
  readonly tenantId: string
  readonly keyId: string
}

export class FairShare {
  readonly #capacity: number
  readonly #tenants = new Map<string, number>()
  readonly #keys = new Map<string, number>()
  #total = 0

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  /** bytes of all owners */
  get total(): number {
    return this.#total
  }

  /** bytes that the key of `owner` holds */
  heldByKey({ keyId }: Owner): number {
    return this.#keys.get(keyId) ?? 0
  }

  /** Whether the tenant of `owner` may hold `more` bytes more. */
  tenantFits({ tenantId }: Owner, more = 0): boolean {
    return (this.#tenants.get(tenantId) ?? 0) + more <= this.#capacity - this.#total - more
  }

  /** Whether the key of `owner` may hold `more` bytes more. Then its tenant may too. */
  fits({ keyId, tenantId }: Owner, more = 0): boolean {
    const left = this.#capacity - this.#total - more - (this.#tenants.get(tenantId) ?? 0) - more
    return (this.#keys.get(keyId) ?? 0) + more <= left / 2
  }

  /** Takes `bytes`, or gives them back when they are negative. */
  take({ keyId, tenantId }: Owner, bytes: number): void {
    if (bytes === 0) return
    this.#total += bytes
    add(this.#tenants, tenantId, bytes)
    add(this.#keys, keyId, bytes)
  }
}

/** Owners without memory have no entry. */
const add = (held: Map<string, number>, owner: string, bytes: number): void => {
  const now = (held.get(owner) ?? 0) + bytes
  if (now === 0) held.delete(owner)
  else held.set(owner, now)
}
