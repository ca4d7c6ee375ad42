/**
 * The audit log. Admitted requests (`open`, `close`) and refusals (`refuse`) have separate queues, so neither delays the
 * other. All three report when the row is durable. Rows are written in groups (`GroupCommit.ts`).
 */
import { Context, type Effect } from "effect"
import type { Unavailable } from "../domain/Errors.ts"
import type { Evidence, Permit } from "../domain/Evidence.ts"
import type { Usage } from "../domain/Usage.ts"
import type { AuditRecord } from "../domain/AuditRecord.ts"

/** Waits a bounded time until a row that was accepted is durable. */
export type Written = Effect.Effect<void, Unavailable>

export class Audit extends Context.Service<
  Audit,
  {
    /** Writes the intent row. Without the row there is no permit and no backend call: the answer is a 503. */
    open(queued: Evidence<"Queue">): Effect.Effect<Permit, Unavailable>
    /**
     * Records what an open request has used so far and what it holds. The heartbeat writes both with the
     * lease. If this process dies, the request is charged what it used. Until the request ends, the ledger counts what it
     * holds as spent.
     */
    progress(requestId: string, usage: Usage, held?: number): void
    /**
     * Accepts the end of an intent, before it returns: audit row, ledger and end of the intent are one transaction, once per request
     * id even if it is accepted several times. After a failure the row stays queued and is retried in the background.
     */
    close(record: AuditRecord): Written
    /**
     * Accepts the row of a request without an intent (refusals, lists), before it returns. The wait fails when the queue is full. A
     * refusal whose row is late keeps its status. An answer (status below 400) fails without its row.
     */
    refuse(record: AuditRecord): Written
    /**
     * Counts a refusal that gets no row of its own, because its sender has used up its rows. One row a second stands for
     * all refusals of a sender with the same outcome (`Tally.ts`). It never waits.
     */
    tally(record: AuditRecord): Effect.Effect<void>
  }
>()("tollgate/audit/Audit") {}
