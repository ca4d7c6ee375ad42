/** Posts a body as it is, and what to expect of it. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { JsonObject } from "../../../src/domain/Inference.ts"
import { Fake } from "../../support/Gateway.ts"
import { rawPost } from "../../support/RawClient.ts"
import { assertAudited, assertRefusal, unharmed, say } from "./checks.ts"

/** One JSON request on a connection of its own. */
export const ask = Effect.fnUntraced(function* (
  secret: string,
  body: string | Uint8Array,
  options: { readonly path?: string; readonly headers?: ReadonlyArray<string> } = {}
) {
  const { responses } = yield* say(
    rawPost(options.path ?? "/api/chat", secret, body, options.headers ?? ["Connection: close"]),
    { answers: 1 }
  )
  return responses[0]
})

/** Each is refused with a 400 about itself; answers the sentences. */
export const refused = (secret: string, bodies: ReadonlyArray<string | Uint8Array>, path = "/api/chat") =>
  Effect.forEach(bodies, (body) =>
    Effect.gen(function* () {
      const of = Buffer.from(body).toString("latin1").slice(0, 80)
      const response = yield* ask(secret, body, { path })
      yield* assertAudited(assertRefusal(response, 400, of), 400)
      const message: string = JSON.parse(response?.body ?? "").error.message
      return message
    })
  ).pipe(unharmed)

/** What the backend was sent for `body`, as it reads it. */
export const sent = Effect.fnUntraced(function* (
  secret: string,
  body: string | JsonObject,
  path = "/api/chat"
) {
  const backend = yield* Fake
  const before = backend.requests.length
  const response = yield* ask(secret, typeof body === "string" ? body : JSON.stringify(body), { path })
  assert.strictEqual(response?.status, 200, response?.text)
  assert.strictEqual(backend.requests.length, before + 1)
  const last = backend.requests.at(-1)
  assert.isDefined(last?.body)
  return { raw: last?.raw ?? "", body: last?.body ?? {} }
})
