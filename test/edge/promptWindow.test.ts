/** Prompts that are longer than the context window, and clients that ask for another window. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { tagsEntry } from "../../src/backend/demo/wire.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import { call, eventually, Fake, hello, layerGateway, newKey, rowOf } from "../support/Gateway.ts"
import { install } from "./surface/asking.ts"
import { inWorld } from "../support/testWith.ts"

const words = (count: number) => [{ role: "user", content: "word ".repeat(count) }]

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

inWorld(layerGateway({ BACKEND_CONTEXT_LENGTH: "100" }))("PROMPT_OVERFLOW=warn", (test) => {
  test("when a prompt does not fit, then it is sent unchanged, and header, audit and metric say so", function* () {
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

  test("when only the server's count shows it, then the audit says so, and the header of one object", function* () {
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
    // Others say nothing, and no other row has an opinion on what has no prompt.
    const short = yield* call("/api/chat", { secret, body: hello({ stream: false }) })
    assert.deepStrictEqual([hint(short), yield* truncatedOf(short)], [null, false])
    assert.isNull(yield* truncatedOf(yield* call("/api/tags", { secret })))
  })
})

/** The window that a client asks for, the one that is sent, and the one that it is told when it is another. */
const windows = [
  {
    env: { BACKEND_CONTEXT_LENGTH: "100", NUM_CTX_CAP: "200" },
    cases: [
      [8192, 200, "200"],
      [200, 200, null],
      [1, 50, "50"],
      [undefined, undefined, null]
    ]
  },
  {
    env: { BACKEND_CONTEXT_LENGTH: "4096" },
    cases: [
      [32_768, undefined, "4096"],
      [2048, undefined, "4096"],
      [4096, undefined, null]
    ]
  }
] as const

for (const { cases, env } of windows) {
  inWorld(layerGateway(env))(`a window with ${Object.keys(env).join(" and ")}`, (test) => {
    test("when a client asks for one, then the server gets what may be, and the answer says which", function* () {
      const [backend, { secret }] = [yield* Fake, yield* newKey()]
      for (const [num_ctx, sent, told] of cases) {
        for (const [path, body] of [
          ["/api/chat", hello({ options: { num_ctx } })],
          ["/api/generate", { model: "m", prompt: "hi", options: { num_ctx } }],
          ["/api/embed", { model: "embedder", input: "x", options: { num_ctx } }]
        ] as const) {
          const { headers } = yield* call(path, { secret, body })
          assert.strictEqual(headers.get("x-num-ctx"), told, `${path} ${num_ctx}`)
          assert.strictEqual(Object(backend.requests.at(-1)?.body?.["options"]).num_ctx, sent)
        }
      }
    })
  })
}

inWorld(layerGateway({ BACKEND_CONTEXT_LENGTH: "4096" }))("the lists of models", (test) => {
  test("when a client asks what a model can take, then both lists tell the window that its requests have", function* () {
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
})

inWorld(layerGateway({ PROMPT_OVERFLOW: "refuse", BACKEND_CONTEXT_LENGTH: "100" }))(
  "PROMPT_OVERFLOW=refuse",
  (test) => {
    test("when a prompt cannot fit, then it is a 400 with both figures on both surfaces, without a call", function* () {
      const [backend, { secret, tenant }] = [yield* Fake, yield* newKey()]
      const before = backend.requests.length
      const sentence =
        "the prompt does not fit: this model's maximum context length is 100 tokens, and the prompt has about"
      const answers = [
        yield* call("/api/chat", { secret, body: hello({ messages: words(101) }) }),
        yield* call("/api/generate", { secret, body: { model: "m", prompt: "word ".repeat(101) } }),
        yield* call("/v1/chat/completions", { secret, body: hello({ messages: words(101) }) }),
        yield* call("/api/embed", {
          secret,
          body: { model: "embedder", input: ["x", "word ".repeat(101)] }
        })
      ]
      for (const answer of answers) {
        assert.strictEqual(answer.status, 400)
        assert.include(answer.text, sentence)
        assert.include(answer.text, '"type":"context_length_exceeded","code":400')
        assert.deepInclude(yield* rowOf(answer), {
          truncated: null,
          error_type: "context_length_exceeded"
        })
      }
      assert.strictEqual(backend.requests.length, before)
      assert.strictEqual(yield* overflows(tenant, "refused"), 4)
    })

    test("when a prompt may fit, then it is sent, and the server is asked to refuse it otherwise", function* () {
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
  }
)
