/**
 * The model server. It is called with a `Permit` only, which contains the call itself. Its answers leave this port only as `Frame`s, `Embeddings` and
 * models, rebuilt from allow-lists.
 *
 * Chat and generate are always streamed from the backend, also for clients without a stream: there is one code path,
 * tokens are counted live, and a cancelled request stops at once. Closing the Scope closes the connection to the
 * backend.
 */
import { Context, type Effect, type Scope, type Stream } from "effect"
import type { Embeddings } from "../domain/Embeddings.ts"
import type { BackendFailed, ShuttingDown, Unavailable } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import type { JsonObject } from "../domain/Inference.ts"
import type { Description, Model } from "../domain/Model.ts"
import type { Permit } from "../domain/Evidence.ts"
import type { CallError } from "./errors.ts"

export class Backend extends Context.Service<
  Backend,
  {
    /**
     * Succeeds when the first frame is in, so that a failure before it can still be an HTTP status. The stream
     * ends after the frame with `done: true`, which is ours (`length`, without counts) when the backend ended cleanly
     * without one; anything else that ends it is a `BackendFailed`.
     *
     * Fails with `Forbidden` when the backend no longer has the model, with `BadRequest` (one of a few fixed
     * sentences, never the backend's text) when it refused the request itself. When this process ends before the
     * answer does (`Drain.cut`), either fails with `ShuttingDown`; when there is no memory for the answer, with
     * `Unavailable` (`AnswerMemory.ts`). That memory is given back when the Scope closes.
     */
    forward(
      permit: Permit
    ): Effect.Effect<Stream.Stream<Frame, BackendFailed | ShuttingDown | Unavailable>, CallError, Scope.Scope>
    /**
     * Embeds in one answer: `POST /api/embed`, or the legacy `/api/embeddings` for a request of that kind. One
     * vector per input or `BackendFailed`; fails as `forward` does.
     */
    embed(permit: Permit): Effect.Effect<Embeddings, CallError, Scope.Scope>
    /**
     * `POST /api/show` for the permitted model, without system prompt, template, modelfile, messages and remote
     * hosts; `details`, `model_info` and `capabilities` are always there. Fails as `forward` does.
     */
    show(permit: Permit): Effect.Effect<JsonObject, CallError, Scope.Scope>
    /** `GET /api/tags`: installed local models, without entries that are proxied to another host. */
    readonly models: Effect.Effect<ReadonlyArray<Model>, BackendFailed>
    /** `POST /api/show` for discovery: what a model can do. It does not use the breaker. */
    describe(name: string): Effect.Effect<Description, BackendFailed>
    /** Succeeds when the backend answers, for readiness. It does not use the breaker. */
    readonly ping: Effect.Effect<void, BackendFailed>
  }
>()("tollgate/backend/Backend") {}
