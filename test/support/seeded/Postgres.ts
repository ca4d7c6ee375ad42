/**
 * A twin of Postgres that knows the statements of the gateway by their text, and nothing else of SQL. So audit, ledger, crash
 * recovery, reconciliation and key store run as they are. A statement that it does not know is a defect of the simulation.
 */
import * as Reactivity from "effect/reactivity/Reactivity"
import * as PgClient from "@effect/sql-pg/PgClient"
import type { Notification } from "@effect/sql-pg/PgConnection"
import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Effect, Queue, Stream } from "effect"
import { SqlClient } from "effect/sql"
import type { Connection } from "effect/sql/SqlConnection"
import { ConnectionError, SqlError } from "effect/sql/SqlError"
import * as Statement from "effect/sql/Statement"
import type { CounterOwner } from "../../../src/domain/Reservation.ts"
import type { AuditRow, IntentRow, ProgressRow } from "../../../src/audit/rows.ts"
import { KeyAttributes, TenantAttributes } from "../../../src/domain/attributes.ts"
import { type StoredIntent, Tables } from "../twins/Tables.ts"
import type { Process, Simulation } from "./Simulation.ts"
import { short, Store } from "./Store.ts"

export interface TenantRow {
  readonly id: string
  readonly name: string
  readonly settings: TenantAttributes
}
export interface KeyRow {
  readonly id: string
  readonly prefix: string
  readonly secret: string
  readonly tenantId: string
  /** the key whose budgets and windows it shares */
  readonly account: string
  readonly settings: KeyAttributes
}
type Row = Readonly<Record<string, unknown>>
type Params = ReadonlyArray<unknown>

const isList = <A>(value: unknown): value is ReadonlyArray<A> => Array.isArray(value)
/** A statement gets rows as a list for each column (`src/infra/columns.ts`). Here they are one parameter. */
const withRows = (sql: string, params: Params): Params => {
  const lists = params.filter(PgTypes.isParameter)
  const [, columns] = /unnest\(lists[^)]*\) AS r\(([^)]*)\)/.exec(sql) ?? []
  if (lists.length === 0 || columns === undefined) return params
  const valuesOf = ({ oid, value }: PgTypes.Parameter): ReadonlyArray<unknown> =>
    listed(value).map((one) =>
      typeof one === "bigint"
        ? Number(one)
        : oid === PgTypes.OID.timestamptzArray && typeof one === "number"
          ? new Date(one).toISOString()
          : one
    )
  const values = columns.split(", ").map((name, i) => [name, lists[i] ? valuesOf(lists[i]) : []] as const)
  const rows = (values[0]?.[1] ?? []).map((_, i) =>
    Object.fromEntries(values.map(([name, all]) => [name, all[i]]))
  )
  const first = params.findIndex(PgTypes.isParameter)
  return [...params.slice(0, first), rows, ...params.slice(first + lists.length)]
}

/** The rows or ids of a list. Only statements of `src` make them, so their form is known. */
const listed = <A>(value: unknown): ReadonlyArray<A> => (isList<A>(value) ? value : [])
/** A list of named entries, as the database has it: an object. */
const byName = (entries: unknown) =>
  Object.fromEntries(
    listed<{ readonly name: string }>(entries).map(({ name, ...entry }): [string, object] => [name, entry])
  )
const sorted = <A extends { readonly request_id: string }>(value: unknown): ReadonlyArray<A> =>
  listed<A>(value).toSorted((one, two) => (one.request_id < two.request_id ? -1 : 1))
const idRows = (ids: ReadonlyArray<string>): ReadonlyArray<Row> => ids.map((id) => ({ id }))
const names = (rows: ReadonlyArray<{ readonly request_id: string }>) =>
  rows.map(({ request_id }) => short(request_id)).join(" ")
const lost = (why: string) =>
  new SqlError({ reason: new ConnectionError({ cause: new Error(why), message: why, operation: "execute" }) })

export class Postgres extends Store {
  readonly tenants = new Map<string, TenantRow>()
  /** when the limits of a tenant were last changed, and to what */
  readonly changed = new Map<string, { readonly at: number; readonly rpm: number }>()
  /** by prefix */
  readonly keys = new Map<string, KeyRow>()
  /** epoch ms, by prefix */
  readonly revoked = new Map<string, number>()
  readonly tables = new Tables(() => this.simulation.now)
  /** when each row was written */
  readonly loggedAt = new Map<string, number>()
  /** Called when a row is written, with the intent that it ends. */
  onRow: (row: AuditRow, intent: StoredIntent | undefined, by: Process) => void = () => undefined
  readonly #versions = new Map<string, { readonly of: ReadonlyArray<unknown>; readonly version: string }>()
  readonly #listeners = new Set<{
    readonly of: Process
    readonly queue: Queue.Queue<Notification, SqlError>
  }>()
  #flushedAt = 0

  constructor(simulation: Simulation) {
    super(simulation, "postgres")
    this.tables.accountOf = (keyId) =>
      [...this.keys.values()].find(({ id }) => id === keyId)?.account ?? keyId
  }

  get #now(): number {
    return this.simulation.epoch + this.simulation.now
  }

  override drop(): void {
    super.drop()
    for (const { of, queue } of this.#listeners)
      this.simulation.after(
        1,
        of,
        () => void Effect.runSync(Queue.fail(queue, lost("postgres: the connection broke")))
      )
    this.#listeners.clear()
  }

  /** It stops and starts again. Commits that did not wait for the disk may be lost: those of intents. */
  crash(): void {
    this.drop()
    const since = Math.max(this.#flushedAt, this.simulation.now - 600)
    const { intents } = this.tables
    const gone = [...intents.values()].filter(({ written }) => written > since)
    for (const { request_id } of gone) intents.delete(request_id)
    this.simulation.say(
      this.name,
      `crashes and starts again, without the intents of ${names(gone) || "nobody"}`
    )
  }

  changeTenant(tenant: TenantRow): void {
    this.tenants.set(tenant.id, tenant)
    this.changed.set(tenant.id, { at: this.simulation.now, rpm: tenant.settings.rpm })
  }

  revoke(prefix: string): void {
    this.revoked.set(prefix, this.#now)
    for (const { of, queue } of this.#listeners)
      this.simulation.after(this.latencyMs, of, () => {
        Effect.runSync(Queue.offer(queue, { processId: 1, channel: "key_revoked", payload: prefix }))
      })
  }

  /** Writes rows; returns the ids of those that were there. */
  #log(rows: ReadonlyArray<AuditRow>, by: Process) {
    this.#flushedAt = this.simulation.now
    return this.tables.write(rows, (row, intent) => {
      this.onRow(row, intent, by)
      this.loggedAt.set(row.request_id, this.simulation.now)
    })
  }

  #totals([owners, at, held]: Params, ownerOf: (id: string) => CounterOwner): ReadonlyArray<Row> {
    return String(owners)
      .split("\n")
      .map((id) => ({ owner: id, ...this.tables.spent(ownerOf(id), String(at), held === true) }))
  }

  #keyRow(prefix: string, known: string): ReadonlyArray<Row> {
    const key = this.keys.get(prefix)
    const tenant = this.tenants.get(key?.tenantId ?? "")
    if (key === undefined || tenant === undefined) return [{ asked: prefix, prefix: null }]
    const usable = !this.revoked.has(prefix)
    const of = [key.settings, tenant.settings, usable]
    const before = this.#versions.get(prefix)
    const version = before?.of.every((part, i) => part === of[i])
      ? before.version
      : JSON.stringify(of).replaceAll(",", ";")
    this.#versions.set(prefix, { of, version })
    if (version === known) return []
    const stored = (settings: object): Row =>
      Object.fromEntries(
        Object.entries(settings).map(([name, value]) => [
          name,
          /^budget|^eachUser(?:Daily|Weekly|Monthly|Total)$/.test(name) && typeof value === "number"
            ? BigInt(value)
            : ["modelAliases", "aliasDefaults", "userRules", "modelRules"].includes(name)
              ? byName(value)
              : value
        ])
      )
    const ofTenant = Object.entries(stored(tenant.settings)).map(([name, value]) => [`tenant.${name}`, value])
    return [
      {
        asked: prefix,
        version,
        prefix,
        hash: key.secret,
        keyId: key.id,
        accountId: key.account,
        tenantId: tenant.id,
        tenantName: tenant.name,
        scopes: ["chat", "embeddings"],
        usable,
        expiresInMs: null,
        ...stored(key.settings),
        ...Object.fromEntries(ofTenant)
      }
    ]
  }

  /** Each statement: a text that only it contains, what it does in plain words, and its work. */
  readonly #statements: ReadonlyArray<
    readonly [
      text: string,
      says: (params: Params) => string,
      work: (params: Params, of: Process) => ReadonlyArray<Row>
    ]
  > = [
    [
      "INSERT INTO intents",
      ([, rows]) => `writes the intents of ${names(sorted<IntentRow>(rows))}`,
      ([leaseS, rows]) => {
        this.tables.open(sorted<IntentRow>(rows), Number(leaseS))
        return []
      }
    ],
    [
      "FOR UPDATE OF i SKIP LOCKED",
      ([rows]) => `renews the intents of ${names(sorted<ProgressRow>(rows))}`,
      ([rows, leaseS]) => idRows(this.tables.renew(sorted<ProgressRow>(rows), Number(leaseS)))
    ],
    [
      "INSERT INTO audit_corrections",
      ([rows]) => `corrects the rows of ${names(sorted<AuditRow>(rows))}`,
      ([rows]) => {
        this.#flushedAt = this.simulation.now
        return this.tables.correct(sorted<AuditRow>(rows)).map((one) => ({ ...one }))
      }
    ],
    [
      "jsonb_populate_record",
      ([id]) => `ends ${short(String(id))} of a dead process`,
      ([id], of) => {
        const found = this.tables.expired().filter(({ request_id }) => request_id === id)
        this.#log(
          found.map((intent) => this.tables.aborted(intent)),
          of
        )
        return found.map(({ key_id, model, tenant_id, user_account }) => ({
          group: tenant_id,
          key: this.tables.accountOf(key_id),
          user: user_account,
          model
        }))
      }
    ],
    [
      "INSERT INTO ledger",
      ([rows]) => `writes the rows of ${names(sorted<AuditRow>(rows))}`,
      ([rows], of) => idRows(this.#log(sorted<AuditRow>(rows), of))
    ],
    [
      "usage_daily l",
      () => "reads what accounts have spent on models",
      (params) =>
        this.#totals(params, (id) => {
          const [key = "", model = ""] = id.split(" ")
          return { group: "", key, model }
        })
    ],
    [
      "l.key_id = own.part",
      () => "reads what accounts have spent",
      (params) => this.#totals(params, (key) => ({ group: "", key }))
    ],
    [
      "l.user_account = own.part",
      () => "reads what users have spent",
      (params) => this.#totals(params, (user) => ({ group: "", key: "", user }))
    ],
    [
      "l.tenant_id = own.part",
      () => "reads what a tenant has spent",
      (params) => this.#totals(params, (group) => ({ group }))
    ],
    [
      "i.request_id IS NOT NULL AS open",
      ([ids]) => `reads what became of ${listed<string>(ids).map(short).join(" ")}`,
      ([ids]) =>
        listed<string>(ids).map((id) => ({
          id,
          open: this.tables.intents.has(id),
          user: this.tables.audit.get(id)?.user_account ?? null,
          model: this.tables.audit.get(id)?.model ?? null,
          booked: this.tables.booked(id)
        }))
    ],
    [
      "AS account FROM api_keys k",
      () => "reads the accounts of a tenant",
      ([tenant]) => {
        const own = [...this.keys.values()].filter(({ tenantId }) => tenantId === tenant)
        return [...new Set(own.map(({ account }) => account))].map((account) => ({ account }))
      }
    ],
    [
      "clock_timestamp()) * 1000)::float8 AS at",
      () => "tells its time",
      ([leaseS]) => {
        const before = this.simulation.now - 1000 * Number(leaseS)
        return [
          {
            at: this.#now,
            stuck: [...this.tables.intents.values()].filter((one) => one.leaseUntil < before).length
          }
        ]
      }
    ],
    [
      "max(created_at)",
      ([prefix]) => `tells how long ago ${String(prefix)} was revoked`,
      ([prefix]) => [{ age_ms: this.#now - (this.revoked.get(String(prefix)) ?? this.#now) }]
    ],
    [
      "FROM intents WHERE lease_until < now()",
      () => "names the intents of dead processes",
      ([, but, limit]) =>
        idRows(this.tables.expired(listed<string>(but)).map(({ request_id }) => request_id)).slice(
          0,
          Number(limit)
        )
    ],
    [
      "n.prefix AS asked",
      ([prefixes]) => `reads the keys ${String(prefixes)}`,
      ([prefixes, versions]) => {
        const known = String(versions).split(",")
        return String(prefixes)
          .split(",")
          .flatMap((prefix, i) => this.#keyRow(prefix, known[i] ?? ""))
      }
    ],
    ["SELECT 1", () => "answers", () => []]
  ]

  #run(of: Process, sql: string, params: Params) {
    const found = this.#statements.find(([text]) => sql.includes(text))
    if (found === undefined) return Effect.die(new Error(`the twin of Postgres does not know: ${sql}`))
    const [, says, work] = found
    // What is sent does not change when the sender changes its rows.
    const sent = withRows(sql, params).map((value) =>
      isList<unknown>(value) ? value.map((row) => (typeof row === "object" ? { ...row } : row)) : value
    )
    return this.ask(
      of,
      () => says(sent),
      () => work(sent, of),
      lost
    )
  }

  #connection(of: Process): Connection {
    const run = (sql: string, params: Params) => this.#run(of, sql, params)
    return {
      execute: run,
      executeRaw: run,
      executeUnprepared: run,
      executeValues: () => Effect.die("not in the twin"),
      executeValuesUnprepared: () => Effect.die("not in the twin"),
      executeStream: () => Stream.die("not in the twin")
    }
  }

  /** The client of one process. */
  clientOf(of: Process) {
    const listen = (): Effect.Effect<Queue.Dequeue<Notification, SqlError>, SqlError> =>
      this.ask(
        of,
        () => "listens",
        () => {
          const queue = Effect.runSync(Queue.unbounded<Notification, SqlError>())
          this.#listeners.add({ of, queue })
          return queue
        },
        lost
      )
    const client = SqlClient.make({
      acquirer: Effect.succeed(this.#connection(of)),
      transactionAcquirer: Effect.die("not in the twin"),
      compiler: PgClient.makeCompiler(),
      driver: "twin",
      spanAttributes: []
    })
    return Effect.map(client, (client): PgClient.PgClient =>
      Object.assign(client, {
        [PgClient.TypeId]: PgClient.TypeId,
        config: {},
        json: (value: unknown) => Statement.fragment([Statement.parameter(value)]),
        listen,
        notify: () => Effect.void
      })
    ).pipe(Effect.provide(Reactivity.layer))
  }
}
