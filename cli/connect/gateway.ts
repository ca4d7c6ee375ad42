/** What a gateway tells of itself, asked as a client would: whether it serves a path, and the window of a model. */
import { Effect, Option, Schema } from "effect"
import { HttpClient, HttpClientRequest, HttpClientResponse } from "effect/http"
import { type Surface, surfaces } from "./Client.ts"

/** `unknown`: the gateway did not answer as a gateway does. */
export type Served = "on" | "off" | "unknown"

/** Without a key a blocked path is a 403, and a path that is served a 401. */
export const served = Effect.fnUntraced(
  function* (url: string, surface: Surface) {
    const { status } = yield* HttpClient.post(`${url}${surfaces[surface]}`)
    return status === 401 ? "on" : status === 403 ? "off" : "unknown"
  },
  (effect): Effect.Effect<Served, never, HttpClient.HttpClient> =>
    Effect.catchCause(Effect.timeout(effect, "5 seconds"), () => Effect.succeed("unknown"))
)

const Models = Schema.Struct({
  data: Schema.Array(Schema.Struct({ id: Schema.String, context_length: Schema.optionalKey(Schema.Int) }))
})

/** The models of the key. None: the list cannot be had. */
export const modelsOf = Effect.fnUntraced(
  function* (url: string, key: string) {
    const request = HttpClientRequest.get(`${url}/v1/models`).pipe(HttpClientRequest.bearerToken(key))
    const response = yield* HttpClient.execute(request)
    const { data } = yield* HttpClientResponse.schemaBodyJson(Models)(response)
    return Option.some(data)
  },
  (effect) => Effect.catchCause(Effect.timeout(effect, "5 seconds"), () => Effect.succeedNone)
)
