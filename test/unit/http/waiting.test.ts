/** A client of server-sent events that hears nothing for a while hears that it waits; one of NDJSON does not. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Layer, Stream } from "effect"
import { HttpServer } from "effect/http"
import OpenAI from "openai"
import { layerMemory as layerBackend, replyWith } from "../../support/twins/Backend.ts"
import { BackendFailed } from "../../../src/domain/Errors.ts"
import { extraSurfaces } from "../../../src/domain/Surface.ts"
import type { Frame } from "../../../src/domain/Frame.ts"
import { layerFromStore, layerNone } from "../../../src/gates/queue/fromStore.ts"
import { layerMemory } from "../../../src/gates/queue/memory.ts"
import { routes, type Route } from "../../../src/http/routes.ts"
import { ClientTimeouts } from "../../../src/http/server/ClientTimeouts.ts"
import { type InMemoryOptions, layerInMemory, memoryKey } from "../../support/inMemory.ts"
import { modelNamed } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"

type Begun = Deferred.Deferred<Stream.Stream<Frame, BackendFailed>, BackendFailed>

const all: ReadonlyArray<Route> = routes
/** Of every route that streams: its path, and whether its streams are server-sent events. */
const streams = all.flatMap((route) =>
  route.handler === "generate"
    ? [{ path: route.path, isEvents: route.dialect.contentType === "text/event-stream" }]
    : []
)

const timeouts = ClientTimeouts.defaultValue()

/** A gateway before a model that begins when the test says so. */
const late = Effect.fnUntraced(function* (silence = 5, queue: InMemoryOptions["queue"] = layerNone) {
  const begun = yield* Deferred.make<Stream.Stream<Frame, BackendFailed>, BackendFailed>()
  const key = memoryKey({})
  const gateway = layerInMemory({
    keys: [key],
    backend: layerBackend({
      models: Effect.succeed([modelNamed("m:latest")]),
      reply: () => Deferred.await(begun)
    }),
    queue,
    server: { extraSurfaces: new Set(extraSurfaces) }
  }).pipe(Layer.provide(Layer.succeed(ClientTimeouts, { ...timeouts, silence })))
  const { address } = Context.get(yield* Layer.build(gateway), HttpServer.HttpServer)
  return { begun, secret: key.secret, url: HttpServer.formatAddress(address) }
})

const post = (path: string, { secret, url }: { readonly secret: string; readonly url: string }) =>
  fetch(new URL(path, url), {
    method: "POST",
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "m",
      max_tokens: 9,
      stream: true,
      messages: [{ role: "user", content: "hi" }],
      ...(path === "/v1/responses" ? { input: "hi" } : { prompt: "hi" })
    })
  })

/** Asks it for a stream. */
const ask = Effect.fnUntraced(function* (path: string, silence?: number) {
  const gateway = yield* late(silence)
  return { begun: gateway.begun, response: post(path, gateway) }
})

const readerOf = (response: Response) => {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
  const read = Effect.promise(async () => (await reader?.read())?.value ?? "")
  const rest = Effect.gen(function* () {
    let all = ""
    for (let text = yield* read; text !== ""; text = yield* read) all += text
    return all
  })
  return { read, rest }
}

/** What a client reads before and after the model server begins, as `begin` says. */
const heard = Effect.fnUntraced(function* (begin: (begun: Begun) => Effect.Effect<unknown>, path: string) {
  const { begun, response: answer } = yield* ask(path)
  const response = yield* Effect.promise(() => answer)
  assert.strictEqual(response.status, 200, path)
  const { read, rest } = readerOf(response)
  const before = yield* read
  yield* begin(begun)
  return { before, after: yield* rest }
})

const names = (text: string) => [...text.matchAll(/^event: ([\w.]+)$/gm)].map(([, name]) => name)
// On a busy machine it hears more than once that it waits.
const isAgain = (name: string | undefined) => name === "ping" || name === "response.in_progress"
const answers = (begun: Begun) => Deferred.succeed(begun, replyWith(["a", "b"], 9))
const fails = (begun: Begun) => Deferred.fail(begun, new BackendFailed({ fault: "timeout" }))

const test = testWith(it.live)

test("when the first frame takes long, then every stream of events says that it waits, and then has its answer", function* () {
  for (const { path } of streams.filter(({ isEvents }) => isEvents)) {
    const { after, before } = yield* heard(answers, path)
    assert.match(before, /^: waiting$|^event: (?:ping|response.in_progress)$/m, path)
    assert.match(after, /"a"[^]*"b"[^]*(?:\[DONE\]|message_stop|response.completed)/, path)
  }
})

test("when the model server fails after the client has heard that it waits, then the failure is the last event", function* () {
  for (const { path } of streams.filter(({ isEvents }) => isEvents)) {
    const { after } = yield* heard(fails, path)
    const [last = ""] = after.trimEnd().split("\n\n").slice(-1)
    assert.match(last, /^(?:event: (?:error|response.failed)\n)?data: .*model backend unavailable/, path)
    assert.notInclude(after, "[DONE]", path)
  }
})

test("when the openai package reads a stream that says that it waits, then it has the answer, or the failure as its error", function* () {
  for (const [begin, told] of [
    [answers, "ab"],
    [fails, "Error: model backend unavailable"]
  ] as const) {
    const { begun, secret, url } = yield* late()
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
    const messages = [{ role: "user" as const, content: "hi" }]
    const stream = yield* Effect.promise(() =>
      client.chat.completions.create({ model: "m", stream: true, messages })
    )
    yield* begin(begun)
    const read = async () => {
      let text = ""
      for await (const { choices } of stream) text += choices[0]?.delta.content ?? ""
      return text
    }
    assert.strictEqual(yield* Effect.promise(() => read().catch(String)), told)
  }
})

test("when the first frame takes long, then a stream of NDJSON has no byte before it, and a failure is a status", function* () {
  const lines = streams.filter(({ isEvents }) => !isEvents)
  assert.deepStrictEqual(
    lines.map(({ path }) => path),
    ["/api/chat", "/api/generate"]
  )
  for (const { path } of lines) {
    for (const [begin, status] of [
      [answers, 200],
      [fails, 502]
    ] as const) {
      const { begun, response } = yield* ask(path, 1)
      // Real time: many times as long as a stream of events is silent.
      const early = yield* Effect.promise(() =>
        Promise.race([response, new Promise((go) => setTimeout(go, 50))])
      )
      assert.isUndefined(early, path)
      yield* begin(begun)
      const answer = yield* Effect.promise(() => response)
      assert.strictEqual(answer.status, status, path)
      assert.match(yield* readerOf(answer).rest, status === 200 ? /^\{"model":"m"/ : /^\{"error"/, path)
    }
  }
})

test("when a request waits in line, then no stream says so, and a refusal of the line has its status", function* () {
  const line = layerFromStore({ places: 1, depth: 9, maxWaitMs: 100 })
  const gateway = yield* late(1, line.pipe(Layer.provide(layerMemory({ leaseS: 30 }))))
  const first = yield* Effect.promise(() => post("/v1/chat/completions", gateway))
  assert.strictEqual(first.status, 200)
  for (const { path } of streams) {
    const refused = yield* Effect.promise(() => post(path, gateway))
    assert.strictEqual(refused.status, 429, path)
    assert.isAtLeast(Number(refused.headers.get("retry-after")), 1)
    assert.isAtLeast(Number(refused.headers.get("x-queue-wait-ms")), 90)
    assert.include(yield* readerOf(refused).rest, "wait for the model")
  }
})

test("when the model is silent within its answer, then events say that it waits, and lines do not", function* () {
  for (const { isEvents, path } of streams) {
    const { begun, response } = yield* ask(path)
    const more = yield* Deferred.make<void>()
    const frames = replyWith(["a", "b"], 9)
    yield* Deferred.succeed(
      begun,
      Stream.concat(
        Stream.take(frames, 1),
        Stream.unwrap(Effect.as(Deferred.await(more), Stream.drop(frames, 1)))
      )
    )
    const { read, rest } = readerOf(yield* Effect.promise(() => response))
    let before = yield* read
    // Real time: nothing must come.
    const saysSo = /^: waiting$|^event: ping$|"a"[^]*^event: response.in_progress$/m
    if (!isEvents) yield* Effect.sleep("50 millis")
    else for (let text = before; text !== "" && !saysSo.test(before); before += text) text = yield* read
    yield* Deferred.succeed(more, undefined)
    const after = yield* rest
    assert.strictEqual(saysSo.test(before), isEvents, `${path}: ${before}`)
    assert.match(before + after, /"a"[^]*"b"/, path)
  }
})

test("when clients of messages and responses hear that they wait, then it is by the events of their own streams", function* () {
  const messages = yield* heard(answers, "/v1/messages")
  assert.deepStrictEqual(names(messages.before).slice(0, 2), ["message_start", "ping"])
  assert.deepStrictEqual(
    names(messages.after).filter((name) => !isAgain(name)),
    [
      "content_block_start",
      "content_block_delta",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop"
    ]
  )
  const failed = yield* heard(fails, "/v1/messages")
  assert.deepStrictEqual(
    names(failed.after).filter((name) => !isAgain(name)),
    ["error"]
  )
  const { after, before } = yield* heard(fails, "/v1/responses")
  assert.deepStrictEqual(names(before).slice(0, 2), ["response.created", "response.in_progress"])
  assert.deepStrictEqual(
    names(after).filter((name) => !isAgain(name)),
    ["response.failed"]
  )
})
