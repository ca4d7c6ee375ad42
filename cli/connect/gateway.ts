/** What a gateway tells of itself, asked as a client would: whether it serves a path, and the window of a model. */
import { Data, Effect, Schema } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest, HttpClientResponse } from "effect/http"
import { explain } from "../../src/observability/explain.ts"
import { type Surface, surfaces } from "./Client.ts"

/** `unknown`: the gateway did not answer as a gateway does. */
export type Served = "on" | "off" | "unknown"

/** Without a key a blocked path is a 403, and a path that is served a 401. */
export const served = Effect.fnUntraced(
  function* (url: string, surface: Surface) {
    const { status } = yield* HttpClient.post(`${url}${surfaces[surface]}`)
    return status === 401 ? "on" : status === 403 ? "off" : "unknown"
  },
  (effect): Effect.Effect<Served> =>
    effect.pipe(
      Effect.timeout("5 seconds"),
      Effect.provide(FetchHttpClient.layer),
      Effect.catchCause((): Effect.Effect<Served> => Effect.succeed("unknown"))
    )
)

const Models = Schema.Struct({
  data: Schema.Array(Schema.Struct({ id: Schema.String, context_length: Schema.optionalKey(Schema.Int) }))
})

/** Why the models of a key are not known. */
export class NoList extends Data.TaggedError("NoList")<{ readonly why: string; readonly mend: string }> {}

const refused = (status: number): NoList =>
  status === 401
    ? new NoList({ why: "the gateway refuses the key", mend: '"tollgate show-key" says why it may not work' })
    : new NoList({ why: `the gateway answered ${status}`, mend: '"tollgate status" shows what it misses' })

/** The models of the key. */
export const modelsOf = Effect.fnUntraced(
  function* (url: string, key: string) {
    const request = HttpClientRequest.get(`${url}/v1/models`).pipe(HttpClientRequest.bearerToken(key))
    const response = yield* HttpClient.execute(request)
    if (response.status !== 200) return yield* refused(response.status)
    const { data } = yield* HttpClientResponse.schemaBodyJson(Models)(response)
    return data
  },
  (effect, url) =>
    Effect.mapError(
      effect.pipe(Effect.timeout("5 seconds"), Effect.provide(FetchHttpClient.layer)),
      (error) =>
        error instanceof NoList
          ? error
          : new NoList({
              why: `${url} does not answer as a gateway: ${explain(error)}`,
              mend: "check --url, and that the gateway runs"
            })
    )
)
