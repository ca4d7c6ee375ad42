/** Tenants and keys with their waiting requests: whose turn it is, and who has too many. */
import type { Priority } from "../../domain/settings.ts"
import type { Ticket } from "./QueueStore.ts"

/** Requests that share a tag: those of a key, or of all keys of a tenant. */
export interface Flow {
  /** backlogged: start tag of its next request; idle: finish tag of its last */
  tag: number
  /** when it last became backlogged; of equal tags, the one that waits longer goes first */
  since: number
  backlogged: boolean
}

export interface TenantFlow extends Flow {
  /** virtual time among its keys */
  time: number
  readonly keys: Map<string, KeyFlow>
}

export interface KeyFlow extends Flow {
  /** waiting requests, oldest first */
  readonly line: Array<Entry>
}

export interface Entry {
  readonly ticket: Ticket
  readonly replica: string
  /** number among all requests that ever came */
  readonly order: number
  running: boolean
  /** tokens that its flows were charged for it when it got its place */
  charged: number
  /** when it got its place; undefined while it waits, and when the store learned of its place by `restore` */
  startedAt: number | undefined
  /** the last beat of its replica before it came */
  readonly beat: number
  /** finish tags of tenant and key when it went, should both be forgotten before it ends */
  tenantTag: number
  keyTag: number
}

export interface Line {
  /** virtual time among tenants: the start tag of the last request that went */
  time: number
  readonly tenants: Map<string, TenantFlow>
  waiting: number
}

/** An idle flow at or behind the virtual time can be forgotten: it would start at the virtual time anyway. */
export const forgotten = (flow: Flow, time: number): boolean => !flow.backlogged && flow.tag <= time

export const first = <F extends Flow>(flows: Iterable<[string, F]>): [string, F] | undefined => {
  let best: [string, F] | undefined
  for (const entry of flows) {
    const flow = entry[1]
    if (!flow.backlogged) continue
    if (
      best === undefined ||
      flow.tag < best[1].tag ||
      (flow.tag === best[1].tag && flow.since < best[1].since)
    ) {
      best = entry
    }
  }
  return best
}

/** Of the counted names, the one with the most; of equal ones the last by name. */
const mostOf = (counts: Iterable<readonly [name: string, count: number]>) => {
  let most: readonly [name: string, count: number] | undefined
  for (const one of counts) {
    if (one[1] === 0) continue
    if (most === undefined || one[1] > most[1] || (one[1] === most[1] && one[0] > most[0])) most = one
  }
  return most
}

const keyCounts = (tenant: TenantFlow) =>
  [...tenant.keys].map(([name, { line }]) => [name, line.length] as const)

/** The request that gives up its place in the queue for `ticket`; undefined when nobody has too many. */
export const crowded = (
  lines: Readonly<Record<Priority, Line>>,
  { key, priority, tenant }: Ticket
): Entry | undefined => {
  const instead = priority === "interactive" && lines.batch.waiting > 0
  const { tenants } = lines[instead ? "batch" : priority]
  const counts = [...tenants].map(
    ([name, { keys }]) => [name, [...keys.values()].reduce((sum, { line }) => sum + line.length, 0)] as const
  )
  const own = (list: typeof counts, name: string) => list.find(([one]) => one === name)?.[1] ?? 0
  const most = mostOf(counts)
  if (most === undefined) return undefined
  const isOther = instead || most[1] > own(counts, tenant) + 1
  const from = tenants.get(isOther ? most[0] : tenant)
  if (from === undefined) return undefined
  const ofKeys = keyCounts(from)
  const crowdedKey = mostOf(ofKeys)
  if (crowdedKey === undefined || (!isOther && crowdedKey[1] <= own(ofKeys, key) + 1)) return undefined
  return from.keys.get(crowdedKey[0])?.line.at(-1)
}
