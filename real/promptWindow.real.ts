/**
 * Prompts that are longer than the context window, against the real server. The prompts are of words that are known to it, so
 * their tokens can be counted by the server itself.
 */
import { assert, layer } from "@effect/vitest"
import { Console, Effect, Schema } from "effect"
import { call, newKey } from "../test/support/Gateway.ts"
import { layerOwnGateway } from "./RealGateway.ts"
import { minorVersion, OwnOllama } from "./RealOllama.ts"
import { testWith } from "../test/support/testWith.ts"
import { sql } from "../test/support/sql.ts"

const window = 256
const server = { OLLAMA_CONTEXT_LENGTH: String(window) }
const live = { excludeTestServices: true, timeout: 600_000 } as const

const Answer = Schema.fromJsonString(
  Schema.Struct({
    prompt_eval_count: Schema.optionalKey(Schema.Int),
    done_reason: Schema.optionalKey(Schema.String)
  })
)

const truncatedOf = Effect.fnUntraced(function* ({ headers }: { readonly headers: Headers }) {
  const rows = yield* sql<{ readonly truncated: boolean | null }>`
    SELECT truncated FROM audit_log WHERE request_id = ${headers.get("x-request-id")}::text::uuid`
  return rows[0]?.truncated
})

/** Tokens of a text, as the server counts them with a window that is large enough. */
const tokensOf = Effect.fnUntraced(function* (prompt: string) {
  const { url } = yield* OwnOllama
  const text = yield* Effect.promise(async (signal) => {
    const body = {
      model: "plain",
      prompt,
      raw: true,
      stream: false,
      options: { num_ctx: 8192, num_predict: 1 }
    }
    const answer = await fetch(new URL("/api/generate", url), {
      method: "POST",
      body: JSON.stringify(body),
      signal
    })
    return answer.text()
  })
  return (yield* Schema.decodeEffect(Answer)(text)).prompt_eval_count ?? 0
})

const generate = (secret: string, words: number) =>
  call("/api/generate", {
    secret,
    body: {
      model: "plain",
      prompt: "hello ".repeat(words),
      raw: true,
      stream: false,
      options: { num_predict: 1, seed: 1 }
    }
  })

const lengths = [10, 40, 60, 100, 200, 255, 257, 300, 1000]

layer(layerOwnGateway(server, { BACKEND_CONTEXT_LENGTH: String(window) }), live)("warn", (it) => {
  const test = testWith(it.effect)

  test("when the server cuts a prompt, then the audit says so, and when it does not, then the audit says that", function* () {
    const { secret } = yield* newKey()
    const isNew = (yield* Effect.flatMap(OwnOllama, minorVersion)) >= 30
    for (const words of lengths) {
      const tokens = yield* tokensOf("hello ".repeat(words))
      const answer = yield* generate(secret, words)
      // Newer ones leave half a window of a prompt. This tokenizer makes six tokens of a word: the estimate has fewer.
      if (isNew && Math.ceil(("hello ".length * words) / 4) <= window) continue
      const count = (yield* Schema.decodeEffect(Answer)(answer.text)).prompt_eval_count ?? 0
      const truncated = yield* truncatedOf(answer)
      const hint = answer.headers.get("x-prompt-truncated")
      yield* Console.log(`${words} words, ${tokens} tokens, counted ${count}: ${truncated} ${hint}`)
      if (tokens > window) assert.isTrue(truncated, `${words} words`)
      if (tokens + 1 < window) assert.notStrictEqual(truncated, true, `${words} words`)
    }
  })

  test("when old messages of a chat are left out, then the audit says so", function* () {
    const { secret } = yield* newKey()
    const messages = Array.from({ length: 21 }, (_, i) => ({
      role: i % 2 === 0 ? "user" : "assistant",
      content: "hello ".repeat(40)
    }))
    const answer = yield* call("/api/chat", {
      secret,
      body: { model: "plain", messages, stream: false, options: { num_predict: 1 } }
    })
    assert.strictEqual(answer.status, 200, answer.text)
    assert.strictEqual(answer.headers.get("x-prompt-truncated"), "likely")
    assert.isTrue(yield* truncatedOf(answer))
  })

  test("when a model has a window of its own, then the answer says that one, and the server uses it", function* () {
    const { secret } = yield* newKey()
    const body = { model: "tools", prompt: "hi", stream: false, options: { num_ctx: 9, num_predict: 1 } }
    const { headers, status } = yield* call("/api/generate", { secret, body })
    assert.deepStrictEqual([status, headers.get("x-num-ctx")], [200, "2048"])
    const { url } = yield* OwnOllama
    const loaded = yield* Effect.promise((signal) =>
      fetch(new URL("/api/ps", url), { signal }).then((answer) => answer.text())
    )
    assert.include(loaded, '"context_length":2048')
  })

  test("when a client asks for a window, then the answer says that the server's is in force", function* () {
    const { secret } = yield* newKey()
    const body = { model: "plain", prompt: "hi", stream: false, options: { num_ctx: 4096, num_predict: 1 } }
    const { headers, status } = yield* call("/api/generate", { secret, body })
    assert.deepStrictEqual([status, headers.get("x-num-ctx")], [200, String(window)])
    const { url } = yield* OwnOllama
    const loaded = yield* Effect.promise((signal) =>
      fetch(new URL("/api/ps", url), { signal }).then((answer) => answer.text())
    )
    assert.include(loaded, `"context_length":${window}`)
  })
})

layer(layerOwnGateway(server, { BACKEND_CONTEXT_LENGTH: String(window), PROMPT_OVERFLOW: "refuse" }), live)(
  "refuse",
  (it) => {
    const test = testWith(it.effect)

    test("when a prompt fits, then it is answered, and when it does not, then it is a 400 or marked", function* () {
      const { secret } = yield* newKey()
      for (const words of lengths) {
        const tokens = yield* tokensOf("hello ".repeat(words))
        const answer = yield* generate(secret, words)
        yield* Console.log(`${words} words, ${tokens} tokens: ${answer.status}`)
        if (tokens <= window) assert.strictEqual(answer.status, 200, `${words} words: ${answer.text}`)
        else {
          assert.strictEqual(answer.status, 400, `${words} words: ${answer.text}`)
          assert.include(answer.text, '"type":"context_length_exceeded"')
        }
      }
      // Refusals of the server are no failures of it.
      assert.strictEqual((yield* generate(secret, 1)).status, 200)
    })

    test("when an input of embeddings does not fit, then it is the same 400", function* () {
      const { secret } = yield* newKey()
      const embed = (words: number) =>
        call("/api/embed", { secret, body: { model: "embed", input: ["hi", "hello ".repeat(words)] } })
      assert.strictEqual((yield* embed(10)).status, 200)
      const refused = yield* embed(1000)
      assert.strictEqual(refused.status, 400, refused.text)
      assert.include(refused.text, '"type":"context_length_exceeded"')
    })
  }
)
