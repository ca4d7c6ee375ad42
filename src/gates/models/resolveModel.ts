/** The decision of discovery about a request. Both layers use it. */
import { Result } from "effect"
import { type BadRequest, Forbidden } from "../../domain/Errors.ts"
import { type Asked, type Evidence, seal } from "../../domain/Evidence.ts"
import { scopeFor } from "../../domain/Inference.ts"
import { checkWindow, type WindowPolicy, windowOf } from "../../domain/promptWindow.ts"
import type { Catalog } from "./Catalog.ts"
import { checkCapabilities } from "./checkCapabilities.ts"

/** Checks in the order of refusal: scope, model, capabilities. */
export const resolveModel = (
  catalog: Catalog,
  key: Evidence<"KeyStore">,
  asked: Asked,
  policy: WindowPolicy
): Result.Result<Evidence<"Discovery">, BadRequest | Forbidden> => {
  const { caller } = key.facts
  const scope = scopeFor[asked.request.kind]
  if (scope !== "key" && !caller.scopes.has(scope)) return Result.fail(new Forbidden({ what: "scope" }))
  const resolved = catalog.resolve(caller, asked.request.model)
  if (resolved === undefined) {
    const isInstalled = catalog.has(caller, asked.request.model)
    return Result.fail(new Forbidden({ what: isInstalled ? "model not allowed" : "model not installed" }))
  }
  const { request } = asked
  const { model } = resolved
  const window = windowOf(request, model, policy)
  return checkCapabilities(request, model).pipe(
    Result.flatMap(() => checkWindow(request, window, policy)),
    Result.map(() =>
      seal.Discovery(key, { ...asked, ...resolved, ...(window === undefined ? {} : { window }) })
    )
  )
}
