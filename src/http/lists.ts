/** What a key may look at without consuming anything: the models it may use, and the gateway's own version. */
import type { IncomingMessage, ServerResponse } from "node:http"
import { Effect } from "effect"
import type { Caller } from "../domain/Caller.ts"
import type { Model } from "../domain/Model.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { version } from "../version.ts"
import type { Answer } from "./answer.ts"
import { authenticate } from "./authenticate.ts"
import type { Desk } from "./Desk.ts"
import { present } from "./dialect/decode.ts"

const tagOf = (model: Model) => ({
  name: model.name,
  model: model.name,
  modified_at: model.modifiedAt,
  size: model.size,
  digest: model.digest,
  details: model.details,
  ...present({ capabilities: model.capabilities })
})

const entryOf = (model: Model) => {
  const modified = Date.parse(model.modifiedAt)
  return {
    id: model.name,
    object: "model",
    created: Number.isNaN(modified) ? 0 : Math.floor(modified / 1000),
    owned_by: "tollgate"
  }
}

const bodies = {
  tags: ({ discovery }: Desk, caller: Caller) =>
    Effect.map(discovery.effective(caller), (models) => ({ models: models.map(tagOf) })),
  models: ({ discovery }: Desk, caller: Caller) =>
    Effect.map(discovery.effective(caller), (models) => ({ object: "list", data: models.map(entryOf) })),
  version: () => Effect.succeed({ version })
}

export const makeList = (desk: Desk, answer: Answer) =>
  Effect.fnUntraced(function* (
    context: RequestContext,
    incoming: IncomingMessage,
    response: ServerResponse,
    name: keyof typeof bodies
  ) {
    const key = yield* authenticate(desk, context, incoming)
    yield* desk.unread.room(key.value)
    context.headroom = yield* desk.pipeline.headroom(key.value)
    const body = yield* bodies[name](desk, key.value)
    return yield* answer(context, incoming, response, JSON.stringify(body))
  })
