/** Endpoints that consume no limits: the models that the key may use, what it used, and the version of the gateway. */
import { Effect } from "effect"
import { MemoryLedger } from "../memory/MemoryLedger.ts"
import { dateNumbered, TimeZone } from "../domain/Calendar.ts"
import { Forbidden, Unavailable } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import type { OfferedModel } from "../domain/Model.ts"
import { Ledger } from "../gates/limits/Ledger.ts"
import { Limiter } from "../gates/limits/Limiter.ts"
import type { ExtraSurface } from "../domain/Surface.ts"
import { withoutDefaultTag } from "../domain/modelName.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { version } from "../version.ts"
import { makeAuthenticate } from "./authenticate.ts"
import { jsonText, present } from "../domain/json.ts"
import type { Exchange } from "./Exchange.ts"
import { objectReply } from "./replies.ts"
import { headerOf } from "./server/headers.ts"
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

/** An unreadable time is the start of all. */
const dateOf = (text: string): Date => new Date(Date.parse(text) || 0)

const entryOf = ({ model, name, window }: OfferedModel, id = name) => ({
  id,
  object: "model",
  created: Math.floor(dateOf(model.modifiedAt).getTime() / 1000),
  owned_by: "tollgate",
  ...present({ context_length: window })
})

/** The same for Anthropic's clients. */
const anthropicEntryOf = ({ model, name, window }: OfferedModel, id = name) => ({
  type: "model",
  id,
  display_name: name,
  created_at: dateOf(model.modifiedAt).toISOString(),
  max_input_tokens: window ?? null,
  max_tokens: null,
  capabilities: null
})

/** All of them are one page. */
const anthropicListOf = (models: ReadonlyArray<OfferedModel>) => ({
  data: models.map((model) => anthropicEntryOf(model)),
  has_more: false,
  first_id: models[0]?.name ?? null,
  last_id: models.at(-1)?.name ?? null
})

/** Days of the use of a key, today included, and rows of them: the newest. */
const [usageDays, usageRows] = [31, 1000]

/** `m` and `m:latest` are one name. */
const isNamed = (name: string, id: string): boolean => withoutDefaultTag(name) === withoutDefaultTag(id)

type Key = Evidence<"KeyStore">
interface Asked {
  readonly id: string | undefined
  readonly isAnthropic: boolean
}
type ListRoute = Extract<Route, { readonly handler: "list" }>

/** With the surface of messages on, the lists of `/v1` belong to Anthropic's clients too. */
export const makeList = Effect.fnUntraced(function* (extras: ReadonlySet<ExtraSurface>) {
  const discovery = yield* Discovery
  const ledger = yield* Ledger
  const limiter = yield* Limiter
  const memory = yield* MemoryLedger
  const authenticate = yield* makeAuthenticate
  const { dayAt, zone } = yield* TimeZone

  /** The models of the key. The answer says when there are none because the list has expired. */
  const effective = (key: Key, context: RequestContext) =>
    Effect.tap(
      discovery.effective(key),
      Effect.sync(() => void (context.listed = { isExpired: discovery.isExpired() }))
    )

  const bodies = {
    tags: (key: Key, context: RequestContext) =>
      Effect.map(effective(key, context), (models) => ({ models: models.map(tagOf) })),
    models: (key: Key, context: RequestContext, { isAnthropic }: Asked) =>
      Effect.map(effective(key, context), (models) =>
        isAnthropic
          ? anthropicListOf(models)
          : { object: "list", data: models.map((model) => entryOf(model)) }
      ),
    model: (key: Key, context: RequestContext, { id, isAnthropic }: Asked) =>
      Effect.flatMap(effective(key, context), (models) => {
        const model = models.find(({ name }) => id !== undefined && isNamed(name, id))
        return model === undefined || id === undefined
          ? Effect.fail(
              new Forbidden({ what: discovery.isExpired() ? "model list expired" : "model not allowed" })
            )
          : Effect.succeed(isAnthropic ? anthropicEntryOf(model, id) : entryOf(model, id))
      }),
    version: () => Effect.succeed({ version }),
    /** Of the key with those that it replaces: they have one account. */
    usage: ({ facts: { caller } }: Key, { arrival }: RequestContext) => {
      const since = dateNumbered(dayAt(arrival.arrivedAt).number + 1 - usageDays)
      return Effect.mapBoth(ledger.uses(caller.accountId, since, usageRows + 1), {
        onFailure: ({ cause }) => new Unavailable({ gate: "Budget", cause }),
        onSuccess: (uses) => ({
          timezone: zone,
          since,
          truncated: uses.length > usageRows,
          usage: uses.slice(0, usageRows)
        })
      })
    }
  }

  return Effect.fnUntraced(function* (exchange: Exchange, route: ListRoute) {
    const { context, incoming } = exchange
    const isShared = extras.has("messages") && route.path.startsWith("/v1/")
    const key = yield* authenticate(context, incoming, isShared)
    const share = yield* Effect.fromResult(
      memory.share(context, { caller: key.facts.caller, cut: () => incoming.socket.destroy() })
    )
    context.headroom = yield* limiter.headroom(key.facts.caller)
    const asked = {
      id: idOf(route, incoming.url ?? ""),
      isAnthropic: isShared && headerOf(incoming, "anthropic-version") !== undefined
    }
    return objectReply([jsonText(yield* bodies[route.list](key, context, asked))], share)
  })
})
