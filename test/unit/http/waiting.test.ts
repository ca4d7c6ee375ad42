/** A client whose model server has not begun hears that it waits, and then gets its answer or its failure. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Layer, type Stream } from "effect"
import { HttpServer } from "effect/http"
import { layerMemory as layerBackend, replyWith } from "../../support/twins/Backend.ts"
import { BackendFailed } from "../../../src/domain/Errors.ts"
import type { ExtraSurface } from "../../../src/domain/Surface.ts"
import type { Frame } from "../../../src/domain/Frame.ts"
import { makeMemory as makeKeys, memoryKey } from "../../support/twins/KeyStore.ts"
import { layerInMemory } from "../../support/inMemory.ts"
import { modelNamed } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"

type Begun = Deferred.Deferred<Stream.Stream<Frame>, BackendFailed>

/** What a client reads before and after the model server begins, as `begin` says. */
const heard = Effect.fnUntraced(function* (
  begin: (begun: Begun) => Effect.Effect<unknown>,
  surface: ExtraSurface = "messages"
) {
  const begun = yield* Deferred.make<Stream.Stream<Frame>, BackendFailed>()
  const [keys, key] = [makeKeys(), memoryKey({})]
  keys.add(key)
  const gateway = layerInMemory({
    keyStore: keys.layer,
    backend: layerBackend({
      models: Effect.succeed([modelNamed("m:latest")]),
      reply: () => Deferred.await(begun)
    }),
    server: { extraSurfaces: new Set([surface]), answerPatienceMs: 5 }
  })
  const { address } = Context.get(yield* Layer.build(gateway), HttpServer.HttpServer)
  const response = yield* Effect.promise(() =>
    fetch(new URL(`/v1/${surface}`, HttpServer.formatAddress(address)), {
      method: "POST",
      headers: { authorization: `Bearer ${key.secret}`, "content-type": "application/json" },
      body: JSON.stringify({
        model: "m",
        max_tokens: 9,
        stream: true,
        messages: [{ role: "user", content: "hi" }],
        input: "hi"
      })
    })
  )
  assert.strictEqual(response.status, 200)
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
  const read = Effect.promise(async () => (await reader?.read())?.value ?? "")
  const before = yield* read
  yield* begin(begun)
  let after = ""
  for (let text = yield* read; text !== ""; text = yield* read) after += text
  const names = (text: string) => [...text.matchAll(/^event: ([\w.]+)$/gm)].map(([, name]) => name)
  // On a busy machine it hears more than once that it waits.
  const isAgain = (name: string | undefined) => name === "ping" || name === "response.in_progress"
  return { before: names(before).slice(0, 2), after: names(after).filter((name) => !isAgain(name)) }
})

const test = testWith(it.live)

test("when the first frame takes long, then the client hears the start and a ping, and then the answer", function* () {
  const { after, before } = yield* heard((begun) => Deferred.succeed(begun, replyWith(["a", "b"], 9)))
  assert.deepStrictEqual(before, ["message_start", "ping"])
  assert.deepStrictEqual(after, [
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop"
  ])
})

test("when the model server fails after the client has heard that it waits, then the failure is the last event", function* () {
  const { after, before } = yield* heard((begun) =>
    Deferred.fail(begun, new BackendFailed({ fault: "timeout" }))
  )
  assert.deepStrictEqual(before, ["message_start", "ping"])
  assert.deepStrictEqual(after, ["error"])
})

test("when a client of Responses has heard that it waits, then a failure is response.failed", function* () {
  const fails = (begun: Begun) => Deferred.fail(begun, new BackendFailed({ fault: "timeout" }))
  const { after, before } = yield* heard(fails, "responses")
  assert.deepStrictEqual(before, ["response.created", "response.in_progress"])
  assert.deepStrictEqual(after, ["response.failed"])
})
