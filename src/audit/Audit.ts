/**
 * The always-on record. Two lanes that cannot starve each other: admitted work (`open`, `close`) and refusals
 * (`refuse`). All three tell when the row is durable, written by group commit: the first record flushes
 * at once, those that arrive during a flush ride the next.
 */
import { Context, type Effect } from "effect"
import type { Unavailable } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import type { Usage } from "../domain/Usage.ts"
import type { AuditRecord, Intent } from "../domain/AuditRecord.ts"

export class Audit extends Context.Service<
  Audit,
  {
    /** Writes the intent row. No row, no evidence, no backend call: 503. */
    open(intent: Intent): Effect.Effect<Evidence<"Audit", { readonly requestId: string }>, Unavailable>
    /**
     * Notes what an open request has used so far and what it holds, without I/O; the heartbeat makes it durable with
     * the lease. What it used is what it is charged if this process dies; what it holds is what the ledger takes for
     * spent until it ends.
     */
    progress(requestId: string, usage: Usage, held?: number): Effect.Effect<void>
    /**
     * Completes an intent: audit row, ledger and end of the intent in one transaction, once per request id
     * however often it is called. It is on its way as soon as this succeeds; what it gives waits, a bounded time, until it
     * is durable. On failure the record is kept and retried in the background.
     */
    close(record: AuditRecord): Effect.Effect<Effect.Effect<void, Unavailable>>
    /**
     * The row of a request that was never opened (refusals, lists). Waits a bounded time for durability: a refusal
     * whose row is late stays the refusal it is, an answer (status below 400) is not given without its row. Fails
     * too when more rows wait to be written than may.
     */
    refuse(record: AuditRecord): Effect.Effect<void, Unavailable>
    /**
     * Counts a refusal that gets no row of its own, because its sender has had as many as he may: one row a second
     * stands for all of a sender's that ended alike (`Tally.ts`). It never waits.
     */
    tally(record: AuditRecord): Effect.Effect<void>
  }
>()("tollgate/audit/Audit") {}
