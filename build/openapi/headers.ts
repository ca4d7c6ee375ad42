/** The headers of `openapi.json`. A test compares them with those that answers really have. */
import type { JsonObject } from "../../src/domain/Inference.ts"

const text = (description: string): JsonObject => ({ description, schema: { type: "string" } })
const count = (description: string): JsonObject => ({ description, schema: { type: "integer", minimum: 0 } })

export const headers = {
  /** On every answer. */
  always: { "X-Request-ID": text("the request's id, also in the audit log") },
  /** On every answer to a known key, refusals included. */
  limits: {
    "X-RateLimit-Limit-Requests": count("requests per minute"),
    "X-RateLimit-Remaining-Requests": count("requests left in the last 60 seconds"),
    "X-RateLimit-Reset-Requests": text(
      "time until all requests are left again, if no more come, as OpenAI writes it: `0s`, `59s`, `1m0s`"
    ),
    "X-RateLimit-Limit-Tokens": count("tokens per minute"),
    "X-RateLimit-Remaining-Tokens": count("tokens left in the last 60 seconds"),
    "X-RateLimit-Reset-Tokens": text(
      "the same for tokens; tokens that running requests hold count as used now"
    ),
    "X-RateLimit-Model": text(
      "the model of the request, where one of these limits or the budget is that for the model; else absent"
    ),
    "X-Budget-Period": text(
      "the budget period with the fewest tokens left: day, week, month or total; only where a budget is set"
    ),
    "X-Budget-Scope": text(
      "whose budget it is: `key`, `tenant` for the one that all keys of the tenant share, `user` for that of one end user of the key, or `model` for that of the key for the model"
    ),
    "X-Budget-Tokens-Limit": count("tokens of that budget"),
    "X-Budget-Tokens-Remaining": count("tokens left of it"),
    "X-Budget-Reset": count("seconds until its period ends; 86400 for total, which does not end")
  },
  /** On the answer to a request that may have a schema, and a bound on its output. */
  generated: {
    "X-Schema-Relaxed": text(
      "keywords of the request's schema that were left out, as `format, pattern`; only where there are some"
    ),
    "X-Max-Tokens": count(
      "the bound on the output tokens that is in force; only where the request asked for a higher one"
    )
  },
  /** On the answer to a request for the model server. */
  queued: {
    "X-Queue-Wait-Ms": count(
      "milliseconds that the request waited in the queue for the model server; only where BACKEND_MAX_CONCURRENT is set"
    ),
    "X-Model-Loaded": text(
      "`false` when the model server had to load the model for this request, else `true`, as far as the gateway knows; only where BACKEND_MAX_CONCURRENT is set"
    )
  },
  /** On the answer to a request with a prompt. */
  windows: {
    "X-Num-Ctx": text(
      "tokens of the context window in force, or `default` where the gateway does not know them; only when the request asked for another `num_ctx`"
    ),
    "X-Prompt-Truncated": text(
      "`likely` when the prompt seems longer than the context window, so that the model server drops its beginning; else absent"
    )
  },
  /** On the answer of `/readyz`. */
  ready: {
    "X-Readiness": text(
      "what is wrong, as `database=disk full, cache=ok, backend=down, models=expired`; only to clients on the gateway's own machine"
    )
  },
  /** On a list of models. */
  listed: {
    "X-Key-Scopes": text("what the key may do, as `chat, embeddings`"),
    "X-Model-List": text(
      "`expired` when the list is empty because the model server has not listed its models for too long; else absent"
    )
  },
  /** On refusals, where the table of error responses sets them. */
  refusals: {
    "Retry-After": { description: "seconds", schema: { type: "integer", minimum: 1 } },
    "WWW-Authenticate": text("Bearer"),
    "X-Hint": text(
      "what the client may have meant, made of the path alone; of a model it is one sentence, whether it is there or not"
    ),
    "X-Should-Retry": text("`false` where a client would ask again in vain")
  }
} satisfies { readonly [group: string]: JsonObject }
