// A client of these tests leaves by its own AbortController.
// @effect-diagnostics abortControllerInEffect:off
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { type Behaviour, fake } from "../../support/FakeBackend.ts"
import { auditRow, eventually, Fake, Gateway, layerGateway, newKey } from "../../support/Gateway.ts"
import { ask, assertRefused, assertWell, chat, events, generate, json, lines, live, whole } from "./asking.ts"
import { makeStopwatch, atMost } from "../../support/wait.ts"

const stream = (all: Extract<Behaviour, { does: "stream" }>["lines"], more: object = {}): Behaviour => ({
  does: "stream",
  lines: all,
  ...more
})

const text = (frames: ReadonlyArray<{ readonly message?: { readonly content: string } }>) =>
  frames.map(({ message }) => message?.content ?? "").join("")

/** A stream that broke: what came before, then our own words and no end. */
const assertBroken = (answer: { readonly status: number; readonly text: string }, before: string): void => {
  assert.strictEqual(answer.status, 200)
  const frames = lines(answer)
  assert.deepStrictEqual(frames.at(-1), { error: "model backend unavailable" })
  assert.strictEqual(text(frames), before)
  assert.isFalse(frames.some(({ done }) => done === true))
  assert.notInclude(answer.text, "SECRET")
}

/** An answer may be so large that it fills the kernel's buffers. */
layer(layerGateway({ NUM_PREDICT_CAP: "1000000" }), live)("native streaming", (it) => {
  const said = "Grüße 👋🏽 — 你好"
  for (const split of [1, 2, 3, 7]) {
    it.effect(`when the network cuts every ${split} bytes, then frames stay whole`, () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        backend.script(stream([fake.chat(said), fake.chat(said), fake.done()], { split }))
        assert.strictEqual(text(lines(yield* ask("/api/chat", chat()))), said + said)
        backend.script(stream([fake.chat(said), fake.done()], { split }))
        assert.strictEqual(json(yield* ask("/api/chat", whole())).message.content, said)
      })
    )
  }

  it.effect(
    "when two frames come in one chunk, then both are sent in order, and blank lines and CRLF are no frames",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        backend.script(stream([fake.chat("a"), fake.chat("b"), fake.done()], { together: true }))
        assert.strictEqual(text(lines(yield* ask("/api/chat", chat()))), "ab")
        const crlf = [fake.chat("a"), "", fake.chat("b"), "  ", fake.done()]
        backend.script(stream(crlf, { newline: "\r\n", together: true }))
        const answer = yield* ask("/api/chat", chat())
        assert.lengthOf(lines(answer), 3)
        assert.notInclude(answer.text, "\r")
      })
  )

  it.effect("when the last line has no newline, then it is sent with one, and its counts are taken", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      backend.script(stream([fake.chat("a"), fake.done()], { unterminated: true }))
      const answer = yield* ask("/api/chat", chat())
      assert.deepInclude(lines(answer).at(-1), { done: true, prompt_eval_count: 7, eval_count: 3 })
      const charged = yield* auditRow(answer.headers.get("x-request-id"))
      assert.deepInclude(charged, { tokens_in: 7n, tokens_out: 3n, usage_source: "backend" })
    })
  )

  it.effect(
    "when an error comes before the first frame, then it is a 502 of the usual shape and no stream",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        const broken: ReadonlyArray<Behaviour> = [
          { does: "answer", status: 500, body: `{"error":"SECRET /root/.ollama"}` },
          stream([fake.error("SECRET")]),
          stream([]),
          { does: "reset" }
        ]
        for (const behaviour of broken) {
          backend.script(behaviour)
          // A used connection that dies without an answer is tried once more on a fresh one.
          if (behaviour.does === "reset") backend.script(behaviour)
          const answer = yield* ask("/api/chat", chat())
          assert.strictEqual(answer.status, 502)
          assert.strictEqual(answer.contentType, "application/json")
          assert.strictEqual(json(answer).error.message, "model backend unavailable")
          assert.notInclude(answer.text, "SECRET")
          const charged = yield* auditRow(answer.headers.get("x-request-id"))
          assert.deepInclude(charged, { status: 502, tokens_in: 0n, tokens_out: 0n })
          assertWell(yield* ask("/api/chat", whole()))
        }
      })
  )

  it.effect("when an error line comes after frames, then the stream ends in our own words", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      backend.script(stream([fake.chat("Hel"), fake.error("SECRET cuda"), fake.chat("lo"), fake.done()]))
      const answer = yield* ask("/api/chat", chat())
      assertBroken(answer, "Hel")
      const charged = yield* auditRow(answer.headers.get("x-request-id"))
      assert.deepInclude(charged, { status: 502, error_type: "bad_gateway", tokens_out: 1n })
      // One object cannot be half an answer.
      backend.script(stream([fake.chat("Hel"), fake.error("SECRET")]))
      assert.strictEqual((yield* ask("/api/chat", whole())).status, 502)
    })
  )

  it.effect("when the backend ends cleanly without done, then the answer ends as length and is counted", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const { secret } = yield* newKey({ concurrent: 1 })
      // Ollama ends so when the model repeats itself: six times would open the circuit if they were failures.
      for (const streamed of [true, false, true, false, true, false]) {
        backend.script(stream([fake.chat("Hel"), fake.chat("lo")]))
        const answer = yield* ask("/api/chat", chat({ stream: streamed }), { secret })
        const last = lines(streamed ? answer : { text: `${answer.text}\n` }).at(-1)
        assert.deepInclude(last, { done: true, done_reason: "length", eval_count: 2 })
        const charged = yield* auditRow(answer.headers.get("x-request-id"))
        assert.deepInclude(charged, { status: 200, tokens_out: 2n, usage_source: "counted" })
      }
      for (const streamed of [true, false]) {
        backend.script(stream([fake.chat("Hel"), fake.chat("lo")]))
        const answer = yield* ask("/v1/chat/completions", chat({ stream: streamed }), { secret })
        assertWell(answer)
        const [last] = streamed ? events(answer).chunks.slice(-1) : [json(answer)]
        assert.strictEqual(last.choices[0].finish_reason, "length")
        assert.strictEqual(last.usage.completion_tokens, 2)
      }
      assertWell(yield* ask("/api/chat", whole(), { secret }))
    })
  )

  it.effect("when a reset breaks a line off, then it is not sent", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      backend.script(
        stream([fake.chat("Hel"), '{"model":"m","message":{"content":"SECRET'], {
          unterminated: true,
          ends: "reset"
        })
      )
      assertBroken(yield* ask("/api/chat", chat()), "Hel")
      assertWell(yield* ask("/api/chat", whole()))
    })
  )

  it.effect("when the final frame carries content, then it is sent, on both surfaces before the finish", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const last = fake.done("chat", { message: { role: "assistant", content: "lo", thinking: "hm" } })
      const script = () => backend.script(stream([fake.chat("Hel"), last]))
      script()
      const native = lines(yield* ask("/api/chat", chat()))
      assert.strictEqual(text(native), "Hello")
      assert.deepInclude(native.at(-1).message, { content: "lo", thinking: "hm" })
      script()
      assert.strictEqual(json(yield* ask("/api/chat", whole())).message.content, "Hello")
      script()
      const { chunks } = events(yield* ask("/v1/chat/completions", chat({ stream: true })))
      const deltas = chunks.map(({ choices }) => choices[0].delta)
      assert.deepStrictEqual(deltas, [
        { role: "assistant", content: "Hel" },
        { reasoning: "hm" },
        { content: "lo" },
        {}
      ])
    })
  )

  it.effect(
    "when a client leaves, then the call ends, is audited with what was seen, and its slot is free",
    () =>
      Effect.gen(function* () {
        const [{ url }, backend, sql] = [yield* Gateway, yield* Fake, yield* SqlClient.SqlClient]
        const { secret, prefix } = yield* newKey({ concurrent: 1 })
        for (const [path, body, behaviour] of [
          ["/api/generate", generate(), stream([fake.generate("a")], { ends: "hang" })],
          ["/api/embed", { model: "embedder", input: "a" }, { does: "hang" }],
          ["/api/show", { model: "m" }, { does: "hang" }]
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
          const left = makeStopwatch()
          yield* backend.until(() => backend.requests[calls]?.closedAt !== undefined)
          assert.isBelow(left(), atMost(1000), path)
          yield* Effect.promise(() => ended)
          const rows = sql`SELECT status FROM audit_log WHERE key_prefix = ${prefix} AND endpoint = ${path}`
          assert.deepStrictEqual(yield* eventually(rows, ({ length }) => length > 0), [{ status: 499 }])
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

  it.effect("when a frame has fields that are not on the list, then they are not sent", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const extra = {
        remote_host: "SECRET",
        remote_model: "SECRET",
        _debug_info: { rendered: "SECRET" },
        new: "SECRET"
      }
      backend.script(stream([{ ...fake.chat("a"), ...extra }, fake.done("chat", extra)]))
      const answer = yield* ask("/api/chat", chat())
      assert.notInclude(answer.text, "SECRET")
      assert.deepStrictEqual(Object.keys(lines(answer)[0]), ["model", "created_at", "message", "done"])
      backend.script(stream([{ ...fake.chat("a"), ...extra }, fake.done("chat", extra)]))
      assert.notInclude((yield* ask("/v1/chat/completions", chat())).text, "SECRET")
    })
  )

  it.effect("when counts are absent, then there is no NaN anywhere", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const { secret } = yield* newKey()
      const final = { ...fake.chat(""), done: true, done_reason: "stop" }
      for (const [path, body] of [
        ["/api/chat", chat()],
        ["/v1/chat/completions", chat()]
      ] as const) {
        backend.script(stream([final]))
        const answer = yield* ask(path, body, { secret })
        assertWell(answer)
        assert.notMatch(answer.text, /NaN|null,"total_tokens|undefined/)
        const charged = yield* auditRow(answer.headers.get("x-request-id"))
        assert.deepInclude(charged, { status: 200, tokens_out: 0n, usage_source: "counted" })
        assert.match(answer.headers.get("x-ratelimit-remaining-tokens") ?? "", /^\d+$/)
      }
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

layer(layerGateway({ BACKEND_IDLE_TIMEOUT_MS: "300" }), live)("a backend that takes its time", (it) => {
  it.effect("when frames keep coming, then they are never cut; silence between frames is", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const words = Array.from({ length: 12 }, () => fake.chat("a"))
      backend.script(stream([...words, fake.done()], { gapMs: 100 }))
      const started = performance.now()
      assert.strictEqual(text(lines(yield* ask("/api/chat", chat()))), "a".repeat(12))
      assert.isAbove(performance.now() - started, 1000)
      backend.script(stream([fake.chat("a")], { ends: "hang" }))
      assertBroken(yield* ask("/api/chat", chat()), "a")
    })
  )
})
