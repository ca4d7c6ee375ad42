/**
 * The decision of discovery about a request. Both layers use it. It checks too whether a model can do what the request asks
 * for, as far as its capabilities are known, and whether the model server survives the request with this model (`Guards`). When
 * the capabilities are unknown, the backend decides.
 *
 * A context belongs to one version of one model: another version may not know its token ids.
 */
import { Exit, Result } from "effect"
import { type BadRequest, type Decided, Forbidden, refuse } from "../../domain/Errors.ts"
import { type Asked, type Evidence, seal } from "../../domain/Evidence.ts"
import { type InferenceRequest, scopeFor } from "../../domain/Inference.ts"
import { withDefaults } from "../../domain/aliasDefaults.ts"
import { prepare } from "../../domain/prepare.ts"
import { checkWindow, type WindowPolicy, windowOf } from "../../domain/promptWindow.ts"
import type { Catalog } from "./Catalog.ts"
import type { Guards } from "../../backend/Guards.ts"
import { cannotThink, type Model } from "../../domain/Model.ts"

/** Fails with the first thing that the model cannot do. Runs before anything is reserved. */
export const checkCapabilities = (request: InferenceRequest, model: Model, guards: Guards): Decided<void> => {
  if (request.contextDigest !== undefined && request.contextDigest !== model.digest) {
    return refuse("context: expected one of this model, as it is installed now")
  }
  const problem = model.tokenizer && guards.problem(request.body, model.tokenizer)
  if (problem !== undefined) return refuse(problem)
  const { think } = request.body
  return think !== undefined && think !== false && request.thinkIfAble !== true && cannotThink(model)
    ? refuse("think: this model does not support thinking")
    : Result.void
}

/** Checks in the order of refusal: scope, model, capabilities. */
export const resolveModel = (
  catalog: Catalog,
  key: Evidence<"KeyStore">,
  asked: Asked,
  policy: WindowPolicy,
  guards: Guards
): Exit.Exit<Evidence<"Discovery">, BadRequest | Forbidden> => {
  const { caller } = key.facts
  const scope = scopeFor[asked.request.kind]
  if (scope !== "key" && !caller.scopes.has(scope)) return Exit.fail(new Forbidden({ what: "scope" }))
  const resolved = catalog.resolve(caller, asked.request.model)
  if (resolved === undefined) {
    const isInstalled = catalog.has(caller, asked.request.model)
    return Exit.fail(new Forbidden({ what: isInstalled ? "model not allowed" : "model not installed" }))
  }
  const { alias, model } = resolved
  const defaults = alias === undefined ? undefined : caller.aliasDefaults?.get(alias)
  const request =
    defaults === undefined ? asked.request : withDefaults(asked.request, defaults, policy.numCtxCap)
  const window = windowOf(request, model, policy)
  return checkCapabilities(request, model, guards).pipe(
    Result.flatMap(() => checkWindow(request, window, policy)),
    Result.match({
      onFailure: Exit.fail,
      onSuccess: () =>
        Exit.succeed(
          seal.Discovery(key, {
            ...asked,
            ...resolved,
            request: prepare(request, model),
            ...(window === undefined ? {} : { window })
          })
        )
    })
  )
}
