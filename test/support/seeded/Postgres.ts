/**
 * A twin of Postgres that knows the statements of the gateway by their text, and nothing else of SQL. So audit, ledger, crash
 * recovery, reconciliation and key store run as they are. A statement that it does not know is a defect of the simulation.
 */
import * as Reactivity from "effect/reactivity/Reactivity"
import * as PgClient from "@effect/sql-pg/PgClient"
import type { Notification } from "@effect/sql-pg/PgConnection"
import { Effect, Queue, Stream, Struct, type Types } from "effect"
import { SqlClient } from "effect/sql"
import type { Connection } from "effect/sql/SqlConnection"
import { ConnectionError, SqlError } from "effect/sql/SqlError"
import * as Statement from "effect/sql/Statement"
import type { AuditRow, IntentRow, ProgressRow } from "../../../src/audit/rows.ts"
import { monthOf } from "../../../src/domain/Calendar.ts"
import type { Period } from "../../../src/domain/Limits.ts"
import { outcomes } from "../../../src/domain/Outcome.ts"
import { KeyAttributes, TenantAttributes } from "../../../src/domain/attributes.ts"
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
export interface StoredIntent extends Types.Mutable<IntentRow> {
  readonly written: number
  leaseUntil: number
  tokens_out: number
}
interface Correction {
  readonly key_id: string
  readonly day: string
  readonly tokens_in: number
  readonly tokens_out: number
  readonly status: number
}
interface LedgerRow {
  readonly key_id: string
  readonly tenant_id: string
  /** null: in the ledger of keys */
  readonly user_account: string | null
  readonly day: string
  requests: number
  tokens: number
}
type Row = Readonly<Record<string, unknown>>
type Params = ReadonlyArray<unknown>

const isList = <A>(value: unknown): value is ReadonlyArray<A> => Array.isArray(value)
/** The rows or ids of a jsonb document. Only statements of `src` make them, so their form is known. */
const listed = <A>(value: unknown): ReadonlyArray<A> => (isList<A>(value) ? value : [])
const sorted = <A extends { readonly request_id: string }>(value: unknown): ReadonlyArray<A> =>
  listed<A>(value).toSorted((one, two) => (one.request_id < two.request_id ? -1 : 1))
const dayOf = (iso: string): string => iso.slice(0, 10)
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
  readonly intents = new Map<string, StoredIntent>()
  readonly audit = new Map<string, AuditRow>()
  /** when each row was written */
  readonly loggedAt = new Map<string, number>()
  readonly corrections = new Map<string, Correction>()
  readonly ledger = new Map<string, LedgerRow>()
  readonly userLedger = new Map<string, LedgerRow>()
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
    const gone = [...this.intents.values()].filter(({ written }) => written > since)
    for (const { request_id } of gone) this.intents.delete(request_id)
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

  /** The keys whose tokens count for an account. */
  keysOf(account: string): ReadonlyArray<string> {
    return [...this.keys.values()].flatMap((key) => (key.account === account ? [key.id] : []))
  }

  accountOf(keyId: string): string {
    return [...this.keys.values()].find(({ id }) => id === keyId)?.account ?? keyId
  }

  /** The ledger of some keys, or of a tenant, in the periods of `at`. */
  spent(isOwn: (keyId: string, tenantId: string) => boolean, at: string) {
    const sums: { [P in Period]: number } = { day: 0, month: 0, total: 0 }
    for (const { day, key_id, tenant_id, tokens } of this.ledger.values())
      if (isOwn(key_id, tenant_id)) this.#add(sums, day, at, tokens)
    return sums
  }

  /** The same of an end user. */
  spentByUser(user: string, at: string) {
    const sums: { [P in Period]: number } = { day: 0, month: 0, total: 0 }
    for (const row of this.userLedger.values())
      if (row.user_account === user) this.#add(sums, row.day, at, row.tokens)
    return sums
  }

  #add(sums: { [P in Period]: number }, day: string, at: string, tokens: number): void {
    sums.total += tokens
    if (monthOf(Date.parse(day)) === monthOf(Date.parse(at))) sums.month += tokens
    if (day === dayOf(at)) sums.day += tokens
  }

  #book(
    { key_id, tenant_id, user_account: user }: Pick<AuditRow, "key_id" | "tenant_id" | "user_account">,
    day: string,
    tokens: number,
    requests: number
  ): void {
    if (key_id === null || tenant_id === null) return
    const book = (ledger: Map<string, LedgerRow>, name: string, user_account: string | null) => {
      const row = ledger.get(name) ?? { key_id, tenant_id, user_account, day, requests: 0, tokens: 0 }
      row.requests += requests
      row.tokens += tokens
      ledger.set(name, row)
    }
    book(this.ledger, `${key_id} ${day}`, null)
    if (user !== null) book(this.userLedger, `${user} ${key_id} ${day}`, user)
  }

  /** Ends intents and writes rows that are not there; returns the ids of those that are. */
  #log(rows: ReadonlyArray<AuditRow>, by: Process) {
    const there = rows.filter(({ request_id }) => this.audit.has(request_id))
    for (const row of rows) {
      const intent = this.intents.get(row.request_id)
      this.intents.delete(row.request_id)
      if (this.audit.has(row.request_id)) continue
      this.onRow(row, intent, by)
      this.audit.set(row.request_id, row)
      this.loggedAt.set(row.request_id, this.simulation.now)
      if (row.admitted_at !== null) this.#book(row, dayOf(row.admitted_at), row.tokens_in + row.tokens_out, 1)
    }
    this.#flushedAt = this.simulation.now
    return idRows(there.map(({ request_id }) => request_id))
  }

  #correct(rows: ReadonlyArray<AuditRow>): ReadonlyArray<Row> {
    const made: Array<Row> = []
    for (const row of rows) {
      const logged = this.audit.get(row.request_id)
      if (logged === undefined || logged.key_id === null || logged.tenant_id === null) continue
      const [tokens_in, tokens_out] = [row.tokens_in - logged.tokens_in, row.tokens_out - logged.tokens_out]
      const was_aborted = logged.error_type === outcomes.aborted.type
      const isLate =
        row.error_type === outcomes.unavailable.type &&
        logged.error_type !== row.error_type &&
        tokens_in === 0 &&
        tokens_out === 0
      if (this.corrections.has(row.request_id) || !(was_aborted || isLate)) continue
      const admitted = logged.admitted_at ?? logged.arrived_at
      const [key_id, day] = [logged.key_id, dayOf(admitted)]
      this.corrections.set(row.request_id, { key_id, day, tokens_in, tokens_out, status: row.status })
      const tokens = tokens_in + tokens_out
      if (this.ledger.has(`${key_id} ${day}`)) this.#book(logged, day, tokens, 0)
      const account = this.accountOf(key_id)
      const admitted_at = Date.parse(admitted)
      made.push({
        id: row.request_id,
        tenant_id: logged.tenant_id,
        key_id,
        account,
        user_account: logged.user_account,
        admitted_at,
        tokens,
        was_aborted
      })
    }
    this.#flushedAt = this.simulation.now
    return made
  }

  #expired(but: ReadonlyArray<string>): ReadonlyArray<StoredIntent> {
    return sorted<StoredIntent>([...this.intents.values()]).filter(
      ({ leaseUntil, request_id }) => leaseUntil < this.simulation.now && !but.includes(request_id)
    )
  }

  #aborted(stored: StoredIntent): AuditRow {
    return {
      ...Struct.omit(stored, ["leaseUntil", "held", "written"]),
      tokens_cached: null,
      usage_source: "counted",
      status: outcomes.aborted.status,
      error_type: outcomes.aborted.type,
      detail: "gateway: its process died",
      latency_ms: 1,
      queued_ms: null,
      load_ms: null,
      truncated: null,
      repeats: 1
    }
  }

  #totals(
    [owners, at, held]: Params,
    isOwn: (owner: string, row: LedgerRow | StoredIntent) => boolean,
    ledger = this.ledger
  ): ReadonlyArray<Row> {
    return String(owners)
      .split(",")
      .map((owner) => {
        const sums: { [P in Period]: number } = { day: 0, month: 0, total: 0 }
        for (const row of ledger.values())
          if (isOwn(owner, row)) this.#add(sums, row.day, String(at), row.tokens)
        const open = [...this.intents.values()].filter((intent) => isOwn(owner, intent))
        if (held === true)
          for (const one of open)
            this.#add(
              sums,
              dayOf(one.admitted_at),
              String(at),
              Math.max(one.held, one.tokens_in + one.tokens_out)
            )
        return { owner, open: open.length, ...sums }
      })
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
          /^budget|^eachUser(?:Daily|Monthly|Total)$/.test(name) && typeof value === "number"
            ? BigInt(value)
            : name === "modelAliases"
              ? {}
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
        const [now, leaseUntil] = [this.simulation.now, this.simulation.now + 1000 * Number(leaseS)]
        for (const row of sorted<IntentRow>(rows))
          if (!this.audit.has(row.request_id) && !this.intents.has(row.request_id))
            this.intents.set(row.request_id, { ...row, written: now, leaseUntil, tokens_out: 0 })
        return []
      }
    ],
    [
      "FOR UPDATE OF i SKIP LOCKED",
      ([rows]) => `renews the intents of ${names(sorted<ProgressRow>(rows))}`,
      ([rows, leaseS]) => {
        const all = sorted<ProgressRow>(rows)
        for (const { held, request_id, tokens_in, tokens_out } of all) {
          const intent = this.intents.get(request_id)
          if (intent === undefined) continue
          intent.leaseUntil = this.simulation.now + 1000 * Number(leaseS)
          intent.held = Math.max(intent.held, held)
          intent.tokens_in = Math.max(intent.tokens_in, tokens_in)
          intent.tokens_out = Math.max(intent.tokens_out, tokens_out)
        }
        return idRows(
          all.map(({ request_id }) => request_id).filter((id) => !this.intents.has(id) && !this.audit.has(id))
        )
      }
    ],
    [
      "INSERT INTO audit_corrections",
      ([rows]) => `corrects the rows of ${names(sorted<AuditRow>(rows))}`,
      ([rows]) => this.#correct(sorted<AuditRow>(rows))
    ],
    [
      "jsonb_populate_record",
      ([id]) => `ends ${short(String(id))} of a dead process`,
      ([id], of) => {
        const found = this.#expired([]).filter(({ request_id }) => request_id === id)
        this.#log(
          found.map((intent) => this.#aborted(intent)),
          of
        )
        return found.map(({ key_id, tenant_id, user_account }) => ({
          group: tenant_id,
          key: this.accountOf(key_id),
          user: user_account
        }))
      }
    ],
    [
      "INSERT INTO ledger",
      ([rows]) => `writes the rows of ${names(sorted<AuditRow>(rows))}`,
      ([rows], of) => this.#log(sorted<AuditRow>(rows), of)
    ],
    [
      "l.key_id = own.part",
      () => "reads what accounts have spent",
      (params) => this.#totals(params, (owner, { key_id }) => this.accountOf(key_id) === owner)
    ],
    [
      "l.user_account = own.part",
      () => "reads what users have spent",
      (params) => this.#totals(params, (owner, { user_account }) => user_account === owner, this.userLedger)
    ],
    [
      "l.tenant_id = own.part",
      () => "reads what a tenant has spent",
      (params) => this.#totals(params, (owner, { tenant_id }) => tenant_id === owner)
    ],
    [
      "i.request_id IS NOT NULL AS open",
      ([ids]) => `reads what became of ${listed<string>(ids).map(short).join(" ")}`,
      ([ids]) =>
        listed<string>(ids).map((id) => {
          const [row, more] = [this.audit.get(id), this.corrections.get(id)]
          const booked =
            row === undefined
              ? null
              : row.tokens_in + row.tokens_out + (more === undefined ? 0 : more.tokens_in + more.tokens_out)
          return { id, open: this.intents.has(id), user: row?.user_account ?? null, booked }
        })
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
          { at: this.#now, stuck: [...this.intents.values()].filter((one) => one.leaseUntil < before).length }
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
        idRows(this.#expired(listed<string>(but)).map(({ request_id }) => request_id)).slice(0, Number(limit))
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
    const sent = params.map((value) =>
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
