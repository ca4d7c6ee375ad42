/** Endpoints that consume no limits: the models that the key may use, and the version of the gateway. */
import { Effect } from "effect"
import { MemoryLedger } from "../memory/MemoryLedger.ts"
import { Forbidden } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import type { OfferedModel } from "../domain/Model.ts"
import { Limiter } from "../gates/limits/Limiter.ts"
import { withoutDefaultTag } from "../domain/modelName.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { version } from "../version.ts"
import { makeAuthenticate } from "./authenticate.ts"
import { jsonText, present } from "../domain/json.ts"
import type { Exchange } from "./Exchange.ts"
import { objectReply } from "./replies.ts"
import { idOf, type Route } from "./routes.ts"

const tagOf = ({ model, name }: OfferedModel) => ({
  name,
  model: name,
  modified_at: model.modifiedAt,
  size: model.size,
  digest: model.digest,
  details: model.details,
  ...present({ capabilities: model.capabilities })
})

const entryOf = ({ model, name, window }: OfferedModel) => {
  const modified = Date.parse(model.modifiedAt)
  return {
    id: name,
    object: "model",
    created: Number.isNaN(modified) ? 0 : Math.floor(modified / 1000),
    owned_by: "tollgate",
    ...present({ context_length: window })
  }
}

/** `m` and `m:latest` are one name. */
const isNamed = (name: string, id: string): boolean => withoutDefaultTag(name) === withoutDefaultTag(id)

type Key = Evidence<"KeyStore">
type ListRoute = Extract<Route, { readonly handler: "list" }>

export const makeList = Effect.gen(function* () {
  const discovery = yield* Discovery
  const limiter = yield* Limiter
  const memory = yield* MemoryLedger
  const authenticate = yield* makeAuthenticate

  /** The models of the key. The answer says when there are none because the list has expired. */
  const effective = (key: Key, context: RequestContext) =>
    Effect.tap(
      discovery.effective(key),
      Effect.sync(() => {
        context.tellsScopes = true
        if (discovery.isExpired()) context.listExpired = true
      })
    )

  const bodies = {
    tags: (key: Key, context: RequestContext) =>
      Effect.map(effective(key, context), (models) => ({ models: models.map(tagOf) })),
    models: (key: Key, context: RequestContext) =>
      Effect.map(effective(key, context), (models) => ({ object: "list", data: models.map(entryOf) })),
    model: (key: Key, context: RequestContext, id: string | undefined) =>
      Effect.flatMap(effective(key, context), (models) => {
        const model = models.find(({ name }) => id !== undefined && isNamed(name, id))
        return model === undefined || id === undefined
          ? Effect.fail(
              new Forbidden({ what: discovery.isExpired() ? "model list expired" : "model not allowed" })
            )
          : Effect.succeed({ ...entryOf(model), id })
      }),
    version: () => Effect.succeed({ version })
  }

  return Effect.fnUntraced(function* (exchange: Exchange, route: ListRoute) {
    const { context, incoming } = exchange
    const key = yield* authenticate(context, incoming)
    const share = yield* Effect.fromResult(
      memory.share({ caller: key.facts.caller, cut: () => incoming.socket.destroy() })
    )
    context.share = share
    context.headroom = yield* limiter.headroom(key)
    return objectReply(
      [jsonText(yield* bodies[route.list](key, context, idOf(route, incoming.url ?? "")))],
      share
    )
  })
})
