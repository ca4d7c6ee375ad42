/** Prompts that are longer than the context window, and clients that ask for another window. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import OpenAI from "openai"
import { tagsEntry } from "../../src/backend/demo/wire.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import { call, eventually, Fake, Gateway, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { install } from "./surface/asking.ts"

const live = { excludeTestServices: true } as const

const words = (count: number) => [{ role: "user", content: "word ".repeat(count) }]

const rowOf = Effect.fnUntraced(function* ({ headers }: { readonly headers: Headers }) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* eventually(
    sql<{ readonly truncated: boolean | null; readonly error_type: string | null }>`
      SELECT truncated, error_type FROM audit_log
      WHERE request_id = ${headers.get("x-request-id")}::text::uuid`,
    (rows) => rows.length === 1
  )
  return rows[0]
})

const truncatedOf = (answer: { readonly headers: Headers }) =>
  Effect.map(rowOf(answer), (row) => row?.truncated)

const hint = ({ headers }: { readonly headers: Headers }) => headers.get("x-prompt-truncated")

/** The value of the metric for the outcome. */
const overflows = Effect.fnUntraced(function* (tenant: string, outcome: string) {
  const { text } = yield* call("/metrics")
  const line = text
    .split("\n")
    .find(
      (line) =>
        line.startsWith("tollgate_prompt_overflow_total{") &&
        line.includes(`tenant="${tenant}"`) &&
        line.includes(`outcome="${outcome}"`)
    )
  return line === undefined ? undefined : Number(line.split(" ").at(-1))
})

layer(layerGateway({ BACKEND_CONTEXT_LENGTH: "100", NUM_CTX_CAP: "200" }), live)(
  "PROMPT_OVERFLOW=warn",
  (it) => {
    it.effect(
      "when a prompt does not fit, then it is sent unchanged, and header, audit and metric say so",
      () =>
        Effect.gen(function* () {
          const [backend, { secret, tenant }] = [yield* Fake, yield* newKey()]
          for (const stream of [true, false]) {
            const answer = yield* call("/api/chat", { secret, body: hello({ stream, messages: words(300) }) })
            assert.deepStrictEqual([answer.status, hint(answer)], [200, "likely"])
            // It counts 7 tokens.
            assert.isTrue(yield* truncatedOf(answer))
          }
          const openai = yield* call("/v1/chat/completions", {
            secret,
            body: hello({ messages: words(300) })
          })
          assert.deepStrictEqual([openai.status, hint(openai)], [200, "likely"])
          assert.notProperty(backend.requests.at(-1)?.body ?? {}, "truncate")
          assert.notProperty(backend.requests.at(-1)?.body ?? {}, "shift")
          assert.strictEqual(yield* overflows(tenant, "truncated"), 3)
          assert.strictEqual(yield* overflows(tenant, "refused"), 0)
        })
    )

    it.effect(
      "when only the server's count shows it, then the audit says so, and the header of one object",
      () =>
        Effect.gen(function* () {
          const [backend, { secret }] = [yield* Fake, yield* newKey()]
          const cut = () =>
            ({
              does: "stream",
              lines: [wire.chat("Hi"), wire.done("chat", { prompt_eval_count: 100 })]
            }) as const
          backend.script(cut(), cut())
          const streamed = yield* call("/api/chat", { secret, body: hello() })
          assert.isNull(hint(streamed))
          assert.isTrue(yield* truncatedOf(streamed))
          const whole = yield* call("/api/chat", { secret, body: hello({ stream: false }) })
          assert.strictEqual(hint(whole), "likely")
          assert.isTrue(yield* truncatedOf(whole))
        })
    )

    it.effect("when a prompt fits, then nothing is said, and the audit says that it was not cut", () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey()
        const answer = yield* call("/api/chat", { secret, body: hello({ stream: false }) })
        assert.isNull(hint(answer))
        assert.isFalse(yield* truncatedOf(answer))
        assert.isNull(yield* truncatedOf(yield* call("/api/tags", { secret })))
        assert.isNull(
          yield* truncatedOf(
            yield* call("/api/embeddings", { secret, body: { model: "embedder", prompt: "x" } })
          )
        )
      })
    )

    it.effect(
      "when a client asks for a larger window than the cap, then the answer says which is in force",
      () =>
        Effect.gen(function* () {
          const [backend, { secret }] = [yield* Fake, yield* newKey()]
          for (const [asked, sent, told] of [
            [8192, 200, "200"],
            [200, 200, null],
            [100, 100, null],
            [1, 50, "50"]
          ] as const) {
            for (const path of ["/api/chat", "/api/generate"]) {
              const body = { ...hello({ options: { num_ctx: asked } }), prompt: "hi" }
              const { headers } = yield* call(path, { secret, body })
              assert.strictEqual(headers.get("x-num-ctx"), told, `${path} ${asked}`)
              assert.deepInclude(backend.requests.at(-1)?.body?.["options"], { num_ctx: sent })
            }
          }
          assert.isNull((yield* call("/api/chat", { secret, body: hello() })).headers.get("x-num-ctx"))
        })
    )
  }
)

layer(layerGateway({ BACKEND_CONTEXT_LENGTH: "4096" }), live)("without NUM_CTX_CAP", (it) => {
  it.effect(
    "when a client asks what a model can take, then both lists tell the window that its requests have",
    () =>
      Effect.gen(function* () {
        const [backend, { secret }] = [yield* Fake, yield* newKey()]
        for (const [name, length] of [
          ["small:latest", 2048],
          ["large:latest", 1_000_000]
        ] as const) {
          const { capabilities: _untold, ...bare } = tagsEntry(name, [])
          backend.setDescription(name, wire.described(["completion"], length))
          yield* install([], [bare])
          const told = Math.min(length, 4096)
          const listed = call("/v1/models", { secret })
          const entry = (text: string) =>
            JSON.parse(text).data.find(({ id }: { readonly id: string }) => id === name)
          const { text } = yield* eventually(listed, ({ text }) => entry(text)?.context_length === told)
          assert.strictEqual(entry(text)?.context_length, told)
          const shown = yield* call("/api/show", { secret, body: { model: name } })
          assert.strictEqual(JSON.parse(shown.text).context_length, told)
        }
      })
  )

  it.effect(
    "when a client asks for a window, then its wish is not sent, and the answer says which is in force",
    () =>
      Effect.gen(function* () {
        const [backend, { secret }] = [yield* Fake, yield* newKey()]
        for (const [asked, told] of [
          [32_768, "4096"],
          [2048, "4096"],
          [4096, null]
        ] as const) {
          const bodies = [
            ["/api/chat", hello({ options: { num_ctx: asked } })],
            ["/api/embed", { model: "embedder", input: "x", options: { num_ctx: asked } }]
          ] as const
          for (const [path, body] of bodies) {
            const { headers } = yield* call(path, { secret, body })
            assert.strictEqual(headers.get("x-num-ctx"), told, `${path} ${asked}`)
            assert.notProperty(backend.requests.at(-1)?.body?.["options"] ?? {}, "num_ctx")
          }
        }
      })
  )
})

layer(layerGateway({ PROMPT_OVERFLOW: "refuse", BACKEND_CONTEXT_LENGTH: "100" }), live)(
  "PROMPT_OVERFLOW=refuse",
  (it) => {
    it.effect(
      "when a prompt cannot fit, then it is a 400 with both figures on both surfaces, without a call",
      () =>
        Effect.gen(function* () {
          const [{ url }, backend, { secret, tenant }] = [yield* Gateway, yield* Fake, yield* newKey()]
          const before = backend.requests.length
          const sentence =
            "the prompt does not fit: this model's maximum context length is 100 tokens, and the prompt has about"
          const answers = [
            yield* call("/api/chat", { secret, body: hello({ messages: words(101) }) }),
            yield* call("/api/generate", { secret, body: { model: "m", prompt: "word ".repeat(101) } }),
            yield* call("/api/embed", {
              secret,
              body: { model: "embedder", input: ["x", "word ".repeat(101)] }
            })
          ]
          for (const answer of answers) {
            assert.strictEqual(answer.status, 400)
            assert.include(answer.text, sentence)
            assert.include(answer.text, '"type":"context_length_exceeded","code":400')
            assert.deepStrictEqual(yield* rowOf(answer), {
              truncated: null,
              error_type: "context_length_exceeded"
            })
          }
          const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
          const error = yield* Effect.promise(() =>
            client.chat.completions
              .create({ model: "m", messages: [{ role: "user", content: "word ".repeat(101) }] })
              .then(
                () => undefined,
                (error: unknown) => error
              )
          )
          assert.instanceOf(error, OpenAI.BadRequestError)
          if (error instanceof OpenAI.BadRequestError) {
            assert.strictEqual(error.type, "context_length_exceeded")
            assert.include(error.message, "maximum context length is 100 tokens")
          }
          assert.strictEqual(backend.requests.length, before)
          assert.strictEqual(yield* overflows(tenant, "refused"), 4)
        })
    )

    it.effect("when a prompt may fit, then it is sent, and the server is asked to refuse it otherwise", () =>
      Effect.gen(function* () {
        const [backend, { secret }] = [yield* Fake, yield* newKey()]
        // An estimate of 250 tokens, which may be a few.
        const messages = [{ role: "user", content: "=".repeat(1000) }]
        const answer = yield* call("/api/chat", { secret, body: hello({ messages }) })
        assert.deepStrictEqual([answer.status, hint(answer)], [200, "likely"])
        assert.deepInclude(backend.requests.at(-1)?.body, { truncate: false, shift: false })
        yield* call("/v1/completions", { secret, body: { model: "m", prompt: "hi" } })
        assert.deepInclude(backend.requests.at(-1)?.body, { truncate: false, shift: false })
        yield* call("/v1/embeddings", { secret, body: { model: "embedder", input: "hi" } })
        assert.deepInclude(backend.requests.at(-1)?.body, { truncate: false })
        const wanted = yield* call("/api/chat", {
          secret,
          body: hello({ messages: words(300), truncate: true })
        })
        assert.deepStrictEqual([wanted.status, hint(wanted)], [200, "likely"])
        assert.deepInclude(backend.requests.at(-1)?.body, { truncate: true })
      })
    )

    it.effect(
      "when the server refuses a prompt as too long, then it is the same 400, and no failure of the server",
      () =>
        Effect.gen(function* () {
          const [backend, { secret }] = [yield* Fake, yield* newKey()]
          const refusal = {
            does: "answer",
            status: 400,
            body: JSON.stringify({ error: "the input length exceeds the context length" })
          } as const
          const messages = [{ role: "user", content: "=".repeat(1000) }]
          for (let n = 0; n < 8; n += 1) {
            backend.script(refusal)
            const answer = yield* call("/v1/chat/completions", { secret, body: hello({ messages }) })
            assert.strictEqual(answer.status, 400)
            assert.include(answer.text, '"type":"context_length_exceeded"')
            assert.include(answer.text, "maximum context length is 100 tokens, and the prompt has about 2")
          }
          assert.strictEqual((yield* call("/api/chat", { secret, body: hello() })).status, 200)
        })
    )
  }
)
