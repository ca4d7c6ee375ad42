/** Answers what commands ask of this process (`replicas/Replicas.ts`), one question after the other. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer } from "effect"
import { KeyStore } from "../gates/keys/KeyStore.ts"
import { Drain } from "../infra/Drain.ts"
import { listen } from "../observability/listen.ts"
import type { Metrics } from "../observability/Metrics.ts"
import { type OpenRequest, questionChannel, Replicas } from "../replicas/Replicas.ts"
import type { RequestCost } from "./RequestCost.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"

/** Requests that an answer lists. */
const mostListed = 1000

const shown = (
  { arrivedMs, facts, held, permit, running }: RequestCost,
  now: number
): ReadonlyArray<OpenRequest> => {
  const { arrival, caller, endUser, model } = facts
  if (arrival === undefined || caller === undefined || model === undefined || held === undefined) return []
  return [
    {
      request_id: arrival.requestId,
      waits: permit === undefined,
      age_ms: Math.round(now - arrivedMs),
      tenant: caller.tenantName,
      key: caller.keyPrefix,
      end_user: endUser ?? null,
      model: model.name,
      tokens_in: running.tokensIn,
      tokens_out: running.tokensOut,
      held: held.reservation.held
    }
  ]
}

/** `replica`: the id of this process */
export const layerAnswers = ({
  replica
}: {
  readonly replica: string
}): Layer.Layer<never, never, Drain | KeyStore | LeaseKeeper | Metrics | PgClient.PgClient | Replicas> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const [drain, keys, leases] = [yield* Drain, yield* KeyStore, yield* LeaseKeeper]
      const replicas = yield* Replicas

      const answer = Effect.fnUntraced(function* (id: string) {
        const question = yield* replicas.question(id)
        if (question === undefined) return
        const { action, key } = question
        if (action === "refresh") yield* keys.forget(key)
        if (action === "stop" && key !== null) drain.stop(key)
        const costs = leases.open().map(({ cost }) => cost)
        const open = costs.filter(({ facts }) => key === null || facts.caller?.keyPrefix === key)
        const listed = action === "list" ? open.slice(0, mostListed) : []
        const requests = listed.flatMap((cost) => shown(cost, leases.now()))
        yield* replicas.answer(id, replica, { open: open.length, requests })
      })

      yield* listen("questions", yield* PgClient.PgClient, {
        channel: questionChannel,
        // The command says that this process was silent.
        heard: (id) =>
          Effect.catch(answer(id), (cause) => Effect.logWarning("a command got no answer", cause))
      })
    })
  )
