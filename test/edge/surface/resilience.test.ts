import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { type Behaviour, fake } from "../../support/FakeBackend.ts"
import { call, eventually, Fake, installed, layerGateway, newKey } from "../../support/Gateway.ts"
import { ask, assertWell, chat, json, live, whole } from "./asking.ts"

const down: Behaviour = { does: "answer", status: 500, body: `{"error":"SECRET"}` }

layer(layerGateway({ BREAKER_OPEN_MS: "700" }), live)("a backend that fails", (it) => {
  it.effect(
    "when it fails five times, then the circuit of its key is open for every endpoint, and later one request is let through",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        const { secret } = yield* newKey()
        const endpoints = [
          ["/api/chat", whole()],
          ["/api/embed", { model: "embedder", input: "a" }],
          ["/api/show", { model: "m" }],
          ["/v1/embeddings", { model: "embedder", input: "a" }],
          ["/v1/chat/completions", chat()]
        ] as const
        // Refusals of the request itself say nothing about the backend.
        for (let i = 0; i < 8; i += 1) {
          backend.script({ does: "answer", status: 400, body: `{"error":"SECRET does not support chat"}` })
          const answer = yield* ask("/api/embed", { model: "m", input: "a" }, { secret })
          assert.strictEqual(answer.status, 400)
          assert.strictEqual(
            json(answer).error.message,
            "the model does not support a feature that this request uses"
          )
        }
        backend.always(down)
        for (const [path, body] of endpoints) {
          const answer = yield* ask(path, body, { secret })
          assert.strictEqual(answer.status, 502, path)
          assert.lengthOf(answer.calls, 1, path)
        }
        for (const [path, body] of endpoints) {
          const answer = yield* ask(path, body, { secret })
          assert.strictEqual(answer.status, 502, path)
          assert.lengthOf(answer.calls, 0, `${path}: called while the circuit is open`)
          assert.notInclude(answer.text, "SECRET")
        }
        backend.always(undefined)
        yield* eventually(call("/metrics"), ({ text }) => text.includes("\ntollgate_breaker_open_keys 0\n"))
        const calls = backend.requests.length
        const slow: Behaviour = { does: "stream", lines: [fake.chat("a"), fake.done()], gapMs: 150 }
        backend.script(slow)
        const answers = yield* Effect.forEach([1, 2, 3], () => ask("/api/chat", whole(), { secret }), {
          concurrency: 3
        })
        assert.deepStrictEqual(answers.map(({ status }) => status).sort(), [200, 502, 502])
        assert.strictEqual(backend.requests.length, calls + 1)
        for (const [path, body] of endpoints) assertWell(yield* ask(path, body, { secret }), path)
      })
  )
})

layer(layerGateway({ MODEL_DISCOVERY_REFRESH_S: "1", MODEL_DISCOVERY_CACHE_TTL_S: "3" }), live)(
  "a backend that lists nothing",
  (it) => {
    it.effect(
      "when polls fail, then the list stays until its time is up, and then every model is forbidden",
      () =>
        Effect.gen(function* () {
          const backend = yield* Fake
          const { secret } = yield* newKey()
          assertWell(yield* ask("/api/chat", whole(), { secret }))
          backend.onLookup({ does: "answer", status: 500, body: "" })
          const polls = backend.lookups.length
          yield* backend.until(() => backend.lookups.length >= polls + 1)
          assertWell(yield* ask("/api/chat", whole(), { secret }), "after a failed poll")
          const gone = yield* eventually(
            ask("/api/chat", whole(), { secret }),
            ({ status }) => status === 403
          )
          assert.strictEqual(gone.status, 403)
          assert.isAtLeast(backend.lookups.length, polls + 2)
          for (const [path, body] of [
            ["/api/embed", { model: "embedder", input: "a" }],
            ["/api/show", { model: "m" }],
            ["/v1/chat/completions", chat()]
          ] as const) {
            assert.strictEqual((yield* ask(path, body, { secret })).status, 403, path)
          }
          assert.strictEqual((yield* call("/api/tags", { secret })).text, `{"models":[]}`)
          backend.onLookup(undefined)
          backend.setModels(installed)
          const back = yield* eventually(
            ask("/api/chat", whole(), { secret }),
            ({ status }) => status === 200
          )
          assertWell(back)
        })
    )
  }
)
