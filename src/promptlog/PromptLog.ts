/**
 * Stores prompts and answers of keys whose owner has opted in. It writes in the background, after the audit row. It may be
 * late or lose prompts, which a counter shows, but it never affects a request.
 */
import { Context, type Effect } from "effect"
import type { Caller } from "../domain/Caller.ts"
import type { Frame } from "../domain/Frame.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { Arrival } from "../domain/AuditRecord.ts"

/** Collects one request, with a bounded size. */
export interface Transcript {
  add(frames: ReadonlyArray<Frame>): void
  /** Queues what was collected. Never fails, never waits. */
  readonly keep: Effect.Effect<void>
}

export class PromptLog extends Context.Service<
  PromptLog,
  {
    /** undefined when the key has not opted in; then nothing is collected */
    transcript(caller: Caller, arrival: Arrival, request: InferenceRequest): Transcript | undefined
  }
>()("tollgate/promptlog/PromptLog") {}
