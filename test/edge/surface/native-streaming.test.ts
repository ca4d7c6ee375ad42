// A client of these tests leaves by its own AbortController.
// @effect-diagnostics abortControllerInEffect:off
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { type Behaviour, fake } from "../../support/FakeBackend.ts"
import { eventually, Fake, Gateway, layerGateway, newKey } from "../../support/Gateway.ts"
import { ask, assertRefused, assertWell, chat, generate, json, lines, live, whole } from "./asking.ts"
import { makeStopwatch, atMost } from "../../support/wait.ts"

const stream = (all: Extract<Behaviour, { does: "stream" }>["lines"], more: object = {}): Behaviour => ({
  does: "stream",
  lines: all,
  ...more
})

/** An answer may be so large that it fills the kernel's buffers. */
const surfaces = { EXTRA_SURFACES: "responses,messages", NUM_PREDICT_CAP: "1000000" }
layer(layerGateway(surfaces), live)("native streaming", (it) => {
  it.effect(
    "when a client leaves, then the call ends, is audited with what was seen, and its slot is free",
    () =>
      Effect.gen(function* () {
        const [{ url }, backend, sql] = [yield* Gateway, yield* Fake, yield* SqlClient.SqlClient]
        const { secret, prefix } = yield* newKey({ concurrent: 1 })
        const left = new Map<string, number>()
        const waiting = (path: string, body: object) => [path, body, { does: "hang" }, true] as const
        for (const [path, body, behaviour, isCharged] of [
          ["/api/generate", generate(), stream([fake.generate("a")], { ends: "hang" }), true],
          ["/api/show", { model: "m" }, { does: "hang" }, false],
          waiting("/api/embed", { model: "embedder", input: "a" }),
          waiting("/api/chat", chat()),
          waiting("/v1/chat/completions", chat({ stream: true })),
          // More often than failures open the circuit: clients that leave are none.
          ...Array.from({ length: 6 }, () =>
            waiting("/v1/responses", { model: "m", input: "a", stream: true })
          ),
          ...Array.from({ length: 6 }, () =>
            waiting("/v1/messages", { ...chat({ stream: true }), max_tokens: 9 })
          )
        ] as const) {
          const calls = backend.requests.length
          backend.script(behaviour)
          const leave = new AbortController()
          const response = fetch(new URL(path, url), {
            method: "POST",
            signal: leave.signal,
            headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
            body: JSON.stringify(body)
          }).then(
            (answer) => answer.text(),
            () => undefined
          )
          const ended = response.catch(() => undefined)
          yield* backend.until(() => backend.requests.length > calls)
          leave.abort()
          const sinceLeft = makeStopwatch()
          yield* backend.until(() => backend.requests[calls]?.closedAt !== undefined)
          assert.isBelow(sinceLeft(), atMost(1000), path)
          yield* Effect.promise(() => ended)
          const rows = sql`SELECT tokens_in > 0 AS charged FROM audit_log
            WHERE key_prefix = ${prefix} AND endpoint = ${path} AND status = 499`
          left.set(path, (left.get(path) ?? 0) + 1)
          const found = yield* eventually(rows, ({ length }) => length === left.get(path))
          assert.isTrue(
            found.every(({ charged }) => charged === isCharged),
            path
          )
          assertWell(yield* ask("/api/chat", whole(), { secret }), path)
        }
      })
  )

  it.effect(
    "when a client does not read, then the backend is done at its own speed, and no frame is lost",
    () =>
      Effect.gen(function* () {
        const [{ url }, backend] = [yield* Gateway, yield* Fake]
        const { secret } = yield* newKey({ tpm: 1_000_000_000 })
        // More than the buffers of the kernel take.
        const words = 200_000
        const word = `${JSON.stringify(fake.chat("x"))}\n`
        const final = JSON.stringify(fake.done("chat", { eval_count: words }))
        backend.script(stream([...Array.from({ length: words / 100 }, () => word.repeat(100)), final]))
        const calls = backend.requests.length
        const response = yield* Effect.promise(() =>
          fetch(new URL("/api/chat", url), {
            method: "POST",
            headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
            body: JSON.stringify(chat())
          })
        )
        assert.strictEqual(response.status, 200)
        yield* backend.until(() => backend.running === 0 && backend.requests.length > calls)
        const frames = (yield* Effect.promise(() => response.text())).trimEnd().split("\n")
        assert.lengthOf(frames, words + 1)
        assert.include(frames.at(-1), `"eval_count":${words}`)
      })
  )

  it.effect("when generate gives a context, then it is sealed, and only its own key can go on with it", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const ids = [1, 2, 3, 12_345]
      const script = () =>
        backend.script(stream([fake.generate("a"), fake.done("generate", { context: ids })]))
      const { secret } = yield* newKey()
      script()
      const streamed = lines(yield* ask("/api/generate", generate(), { secret })).at(-1).context
      script()
      const whole = json(yield* ask("/api/generate", generate({ stream: false }), { secret })).context
      for (const context of [streamed, whole]) {
        assert.notInclude(JSON.stringify(context), "12345")
        const next = yield* ask("/api/generate", generate({ context }), { secret })
        assert.deepStrictEqual(next.sent?.["context"], ids)
        assertRefused(
          yield* ask("/api/generate", generate({ context })),
          "context: expected what an earlier answer"
        )
      }
      for (const context of [[7], ids, [99_999_999], streamed.slice(1)]) {
        assertRefused(yield* ask("/api/generate", generate({ context }), { secret }), "context")
      }
    })
  )
})
