/**
 * What was asked and answered, for keys whose owner has opted in, and for nobody else. It comes after the audit row
 * and in the background: it can be late or incomplete, and then says so in a counter, but it never hurts a request.
 */
import { Context, type Effect } from "effect"
import type { Caller } from "../domain/Caller.ts"
import type { Frame } from "../domain/Frame.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { Arrival } from "../domain/AuditRecord.ts"

/** One request being taken down; bounded, whatever comes. */
export interface Transcript {
  add(frames: ReadonlyArray<Frame>): void
  /** Hands over what there is, to be written soon. Never fails and never waits. */
  readonly keep: Effect.Effect<void>
}

export class PromptLog extends Context.Service<
  PromptLog,
  {
    /** undefined when the caller's key has not opted in: then nothing is taken down at all */
    transcript(caller: Caller, arrival: Arrival, request: InferenceRequest): Transcript | undefined
  }
>()("tollgate/promptlog/PromptLog") {}
