/** The decision of discovery about a request. Both layers use it. */
import { Effect } from "effect"
import { checkCapabilities } from "../../domain/capabilities.ts"
import type { Scope } from "../../domain/Caller.ts"
import { type BadRequest, Forbidden } from "../../domain/Errors.ts"
import { type Asked, type Evidence, seal } from "../../domain/Evidence.ts"
import type { InferenceKind } from "../../domain/Inference.ts"
import { checkWindow, type WindowPolicy, windowOf } from "../../domain/promptWindow.ts"
import type { Catalog } from "./Catalog.ts"

const scopeOf = {
  chat: "chat",
  generate: "chat",
  embed: "embeddings",
  embeddings: "embeddings",
  // Every valid key may read the descriptions of its models.
  show: undefined
} as const satisfies Record<InferenceKind, Scope | undefined>

/** Checks in the order of refusal: scope, model, capabilities. */
export const resolveModel = (
  catalog: Catalog,
  key: Evidence<"KeyStore">,
  asked: Asked,
  policy: WindowPolicy
): Effect.Effect<Evidence<"Discovery">, BadRequest | Forbidden> => {
  const { caller } = key.facts
  const scope = scopeOf[asked.request.kind]
  if (scope !== undefined && !caller.scopes.has(scope)) return new Forbidden({ what: "scope" })
  const resolved = catalog.resolve(caller, asked.request.model)
  if (resolved === undefined) return new Forbidden({ what: "model" })
  const { request } = asked
  const { model } = resolved
  const window = windowOf(request, model, policy)
  return checkCapabilities(request, model).pipe(
    Effect.andThen(checkWindow(request, window, policy)),
    Effect.map(() =>
      seal.Discovery(key, { ...asked, ...resolved, ...(window === undefined ? {} : { window }) })
    )
  )
}
