/**
 * The model server. A call takes a `Permit`, which contains everything that is sent. Answers are `Frame`s, `Embeddings`
 * and models, rebuilt from allow-lists.
 *
 * Chat and generate are always streamed from the backend, also for clients without a stream: there is one code path,
 * tokens are counted live, and a cancelled request stops at once. Closing the Scope ends a call: its connection is closed,
 * or used again when the answer is complete.
 */
import { Context, type Effect, type Scope } from "effect"
import type { Answer, Embeddings } from "../domain/Frame.ts"
import type { BackendFailed } from "../domain/Errors.ts"
import type { JsonObject } from "../domain/Inference.ts"
import type { Description, Model } from "../domain/Model.ts"
import type { Permit } from "../domain/Evidence.ts"
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import type { CallError } from "./errors.ts"
import type { Guards } from "./Guards.ts"

/** What a server says of itself. `tooOld`: its version, when it is older than what is supported. */
export interface Pinged {
  readonly tooOld?: string
}

export class Backend extends Context.Service<
  Backend,
  {
    /**
     * Succeeds when the first frame is in, so that an earlier failure can still be an HTTP status. The answer ends
     * after the frame with `done: true`. When the backend ends cleanly without it, the gateway adds one (`length`,
     * without counts). Every other end of the answer is a `BackendFailed`.
     *
     * Fails with `Forbidden` when the backend no longer has the model, and with `BadRequest` (one of a few fixed
     * sentences, never the backend's text) when it refused the request. The call and the answer fail with
     * `ShuttingDown` when this process or the key stops (`Drain.onCut`), and with `Unavailable` when there is no memory for the
     * answer in `share`.
     */
    forward(permit: Permit, share: AnswerShare): Effect.Effect<Answer, CallError, Scope.Scope>
    /**
     * `POST /api/embed`, or the older `/api/embeddings` for a request of that kind. Fails as `forward` does, and with
     * `BackendFailed` unless there is one vector per input. The vectors are freed with the Scope.
     */
    embed(permit: Permit, share: AnswerShare): Effect.Effect<Embeddings, CallError, Scope.Scope>
    /**
     * `POST /api/show` for the permitted model, without system prompt, template, modelfile, messages and remote
     * hosts. `details`, `model_info` and `capabilities` are always present. Fails as `forward` does.
     */
    show(permit: Permit, share: AnswerShare): Effect.Effect<JsonObject, CallError>
    /** `GET /api/tags`: the installed models. Models that the backend would proxy to another host are left out. */
    readonly models: Effect.Effect<ReadonlyArray<Model>, BackendFailed>
    /** `POST /api/show` for discovery: what a model can do. It does not use the breaker. */
    describe(name: string): Effect.Effect<Description, BackendFailed>
    /** `GET /api/ps`: the models that are loaded, or being loaded. It does not use the breaker. */
    readonly loaded: Effect.Effect<ReadonlyArray<Model>, BackendFailed>
    /** Succeeds when the backend answers, for readiness. It does not use the breaker. */
    readonly ping: Effect.Effect<Pinged, BackendFailed>
    /** What would harm the server. They are asked before a permit is given. */
    readonly guards: Guards
  }
>()("tollgate/backend/Backend") {}
