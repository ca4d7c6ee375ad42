/**
 * What was used and what was asked, for operators: sums of the ledger, and the rows of the audit. Read only, but for
 * `pruneStep`. Every read is bounded by a number of rows and by a time.
 */
import { Context, type Effect, Schema } from "effect"
import type { Pruned } from "../../audit/months.ts"
import type { Listed, UnreadableRow } from "../../infra/rows.ts"
import type { Bounds, Period } from "./period.ts"
import type { InvalidValue, RegistryDown, UnknownKey, UnknownTenant } from "../Errors.ts"

export const reportColumns = ["tenant", "key", "model", "user", "day"] as const
export type ReportColumn = (typeof reportColumns)[number]

/** What one million tokens of a model cost, by its name; `*` is for all others. */
export interface Price {
  readonly model: string
  readonly in: number
  readonly out: number
  /** of tokens of the prompt that the model server had in its cache */
  readonly cached: number
}

/** Default period: from the first of the month of `until`, until today. */
export interface ReportQuery extends Bounds {
  readonly by: ReportColumn
  readonly tenant?: string | undefined
  readonly model?: string | undefined
  readonly user?: string | undefined
  /** the lowest and the highest status: then refused requests count too, which cost nothing */
  readonly status?: readonly [number, number] | undefined
  readonly prices?: ReadonlyArray<Price> | undefined
  /** how many rows have a line of their own; the others are summed */
  readonly top: number
}

export interface Totals {
  readonly requests: number
  readonly tokensIn: number
  /** part of `tokensIn`, as far as the model server says */
  readonly tokensCached: number
  readonly tokensOut: number
  /** requests that ended with a status of 400 or more; 499, a client that left, is one */
  readonly errors: number
  /** requests that the model server loaded the model for, and how long that took */
  readonly loads: number
  readonly loadMs: number
  /** by the prices that were given */
  readonly cost: number
  /** tokens of models that have no price */
  readonly unpriced: number
}

export interface ReportRow extends Totals {
  /** null: not named (a user) */
  readonly name: string | null
  /** of a key: its label and its tenant */
  readonly label: string | null
  readonly tenant: string | null
}

export interface Report {
  readonly period: Period
  readonly rows: ReadonlyArray<ReportRow>
  /** the sum of the rows beyond `top`, and how many they are */
  readonly others: (Totals & { readonly count: number }) | undefined
}

const Text = Schema.NullOr(Schema.String)

/** A row of the audit as it is after its correction. */
export const RequestRow = Schema.Struct({
  requestId: Schema.String,
  arrivedAt: Schema.Date,
  completedAt: Schema.Date,
  tenant: Text,
  key: Text,
  /** of the key */
  name: Text,
  method: Schema.String,
  endpoint: Schema.String,
  model: Text,
  alias: Text,
  endUser: Text,
  streamed: Schema.Boolean,
  status: Schema.Finite,
  errorType: Text,
  /** why it was refused */
  detail: Text,
  tokensIn: Schema.Finite,
  /** part of `tokensIn`; null: the model server did not say */
  tokensCached: Schema.NullOr(Schema.Finite),
  tokensOut: Schema.Finite,
  usageSource: Text,
  latencyMs: Schema.Finite,
  queuedMs: Schema.NullOr(Schema.Finite),
  loadMs: Schema.NullOr(Schema.Finite),
  clientIp: Schema.String,
  clientRequestId: Text,
  truncated: Schema.NullOr(Schema.Boolean),
  /** number of requests that the row stands for */
  repeats: Schema.Finite,
  /** whether a correction changed status or tokens */
  corrected: Schema.Boolean
})
export type RequestRow = typeof RequestRow.Type

export const Correction = Schema.Struct({
  tokensIn: Schema.Finite,
  tokensOut: Schema.Finite,
  status: Schema.Finite,
  errorType: Text,
  correctedAt: Schema.Date
})

/** A request that is running, or whose process died. */
export const OpenRequest = Schema.Struct({
  requestId: Schema.String,
  tenant: Text,
  key: Schema.String,
  model: Schema.String,
  endpoint: Schema.String,
  arrivedAt: Schema.Date,
  admittedAt: Schema.Date,
  held: Schema.Finite,
  tokensIn: Schema.Finite,
  tokensOut: Schema.Finite,
  leaseUntil: Schema.Date
})

export interface RequestFilter {
  readonly key?: string | undefined
  readonly tenant?: string | undefined
  readonly model?: string | undefined
  readonly user?: string | undefined
  /** the lowest and the highest status */
  readonly status?: readonly [number, number] | undefined
}

/** Default period: the last day. */
export interface RequestQuery extends RequestFilter, Bounds {
  readonly limit: number
}

/** What the audit says of a request, row by row. */
export interface RequestDetails {
  /** the row as it was written, without its correction */
  readonly row: RequestRow | undefined
  readonly correction: typeof Correction.Type | undefined
  readonly open: typeof OpenRequest.Type | undefined
}

type Answer<A, E = never> = Effect.Effect<A, E | InvalidValue | RegistryDown | UnreadableRow>

/** How many rows of the log one query reads when no index helps. */
export const maxScanned = 100_000

export class Records extends Context.Service<
  Records,
  {
    report(query: ReportQuery): Answer<Report, UnknownTenant>
    /**
     * The newest requests, newest first. By tenant or status it looks at the newest `maxScanned` requests only; `exhausted`:
     * whether there are older ones that it did not look at.
     */
    requests(
      query: RequestQuery
    ): Answer<
      Listed<RequestRow> & { readonly exhausted: boolean; readonly period: Period },
      UnknownTenant | UnknownKey
    >
    /** Rows written since an instant (epoch ms, by the database's clock), in the order of writing, and what the clock says. */
    writtenSince(
      filter: RequestFilter,
      since: number | undefined
    ): Answer<Listed<RequestRow> & { readonly now: number }, UnknownTenant | UnknownKey>
    /** By the id of the gateway, or by the client's own, which is looked for among the newest 5 × `maxScanned` requests. */
    request(id: string): Answer<ReadonlyArray<RequestDetails>>
    /** Rows that count several requests and that may count this one: they began when it arrived. */
    talliedAround(requestId: string): Answer<ReadonlyArray<RequestRow>>
    /** What `pruneStep` would drop first, by partition. */
    prunable(days: number): Answer<ReadonlyArray<Pruned>>
    /** Removes one partition, or some rows, older than `days`; undefined when nothing is left. */
    pruneStep(days: number): Answer<Pruned | undefined>
  }
>()("tollgate/admin/Records") {}
