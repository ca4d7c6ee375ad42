/** What holds after every attack: the shape of a refusal, its audit row, a backend left alone, a process alive. */
import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { auditRow, call, eventually, Fake, Gateway, layerGateway } from "../../support/Gateway.ts"
import { type RawResponse, talk, type TalkOptions } from "../../support/RawClient.ts"
import { ClientTimeouts } from "../../../src/http/server/ClientTimeouts.ts"

/** A gateway that waits for a client for less than in production. */
export const layerHasty = layerGateway().pipe(
  Layer.provide(
    Layer.succeed(ClientTimeouts, {
      head: 700,
      body: 500,
      request: 1500,
      idle: 10_000,
      check: 100,
      silence: 10_000
    })
  )
)

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** Exactly the error's shape, nothing of ours inside; answers its request id. */
export const assertRefusal = (response: RawResponse | undefined, status: number, of: string): string => {
  assert.isDefined(response, `${of}: no answer`)
  if (response === undefined) return ""
  assert.strictEqual(response.status, status, `${of}: ${response.text}`)
  assert.match(response.headers.get("content-type") ?? "", /^application\/json/, of)
  const body = JSON.parse(response.body)
  assert.deepStrictEqual(Object.keys(body).sort(), ["error", "request_id"], of)
  assert.deepStrictEqual(Object.keys(body.error).sort(), ["code", "message", "type"], of)
  assert.strictEqual(body.error.code, status, of)
  assert.isString(body.error.message, of)
  assert.isString(body.error.type, of)
  assert.match(body.request_id, uuid, of)
  assert.strictEqual(response.headers.get("x-request-id"), body.request_id, of)
  assert.notMatch(response.text, /node_modules|\.ts:\d|127\.0\.0\.1:\d|SELECT |ECONN|access-control-/i, of)
  return body.request_id
}

/** What the gateway says to bytes on a connection of their own. */
export const say = (bytes: string | Uint8Array, options?: TalkOptions) =>
  Effect.flatMap(Gateway, ({ url }) => talk(url, bytes, options))

/** The row of a refused request is there, and says what the client was told. */
export const assertAudited = Effect.fnUntraced(function* (requestId: string, status: number) {
  const row = yield* eventually(auditRow(requestId), (row) => row !== undefined)
  assert.strictEqual(row?.status, status, requestId)
  assert.strictEqual(row?.tokens_in, 0n)
  assert.strictEqual(row?.tokens_out, 0n)
  return row
})

/** Runs `attack` and sees to it that no inference call reached the backend and the gateway still answers. */
export const unharmed = <A, E, R>(attack: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const backend = yield* Fake
    const before = backend.requests.length
    const result = yield* attack
    assert.strictEqual(backend.requests.length, before, "the backend was called")
    assert.strictEqual((yield* call("/healthz")).status, 200)
    assert.isUndefined(Reflect.get({}, "num_predict"), "a prototype was polluted")
    return result
  })
