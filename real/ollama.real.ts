/**
 * What the client libraries of this package are promised, against a real model server. What it says cannot be known
 * beforehand, so these look at shapes and counts.
 */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Ollama } from "ollama"
import OpenAI from "openai"
import { Registry } from "../src/admin/Registry.ts"
import { answered, collected, refused } from "./promised.ts"
import { call, Gateway, newKey } from "../test/support/Gateway.ts"
import { layerRealGateway } from "./RealGateway.ts"
import { testWith } from "../test/support/testWith.ts"

const native = Effect.fnUntraced(function* (secret: string) {
  const { url } = yield* Gateway
  return new Ollama({ host: url, headers: { Authorization: `Bearer ${secret}` } })
})

/** The first installed model that can do `what`; the run fails where there is none, it never passes by skipping. */
const modelThatCan = Effect.fnUntraced(function* (secret: string, what: "completion" | "embedding") {
  const client = yield* native(secret)
  const { models } = yield* answered(() => client.list())
  for (const { name } of models) {
    const shown = yield* answered(() => client.show({ model: name }))
    if (shown.capabilities.includes(what)) return name
  }
  return assert.fail(`the real server has no model with the capability ${what}`)
})

const messages = [{ role: "user" as const, content: "Say hello." }]

layer(layerRealGateway(), { excludeTestServices: true, timeout: 600_000 })(
  "a real model server behind the gateway",
  (it) => {
    const test = testWith(it.effect)

    test("when it chats, whole and streamed, then the ledger has what the final frames counted", function* () {
      const { secret, tenant } = yield* newKey()
      const client = yield* native(secret)
      const model = yield* modelThatCan(secret, "completion")
      const options = { num_predict: 16, seed: 1 }
      const whole = yield* answered(() => client.chat({ model, messages, options }))
      assert.isTrue(whole.done)
      assert.isAbove(whole.eval_count, 0)
      assert.isAtMost(whole.eval_count, 16)
      const frames = yield* answered(async () =>
        collected(await client.chat({ model, messages, options, stream: true }))
      )
      assert.isTrue(frames.every((frame) => frame.model === model))
      const last = frames.at(-1)
      assert.isTrue(last?.done)
      const usage = yield* Effect.flatMap(Registry, (registry) => registry.usage(tenant, "day"))
      assert.strictEqual(usage.tokensOut, whole.eval_count + (last?.eval_count ?? 0))
    })

    test("when it generates, then nothing of its template is shown", function* () {
      const { secret } = yield* newKey()
      const client = yield* native(secret)
      const model = yield* modelThatCan(secret, "completion")
      const answer = yield* answered(() =>
        client.generate({ model, prompt: "Hello", options: { num_predict: 4 } })
      )
      assert.isTrue(answer.done)
      const shown = yield* call("/api/show", { secret, body: { model, verbose: true } })
      assert.strictEqual(shown.status, 200)
      for (const field of ["system", "template", "modelfile", "messages"]) {
        assert.notProperty(JSON.parse(shown.text), field)
      }
    })

    test("when it speaks OpenAI, then chat, stream with usage, models and refusals work", function* () {
      const { secret } = yield* newKey()
      const { url } = yield* Gateway
      const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
      const model = yield* modelThatCan(secret, "completion")
      const whole = yield* answered(() => client.chat.completions.create({ model, messages, max_tokens: 8 }))
      assert.isAbove(whole.usage?.completion_tokens ?? 0, 0)
      const chunks = yield* answered(async () =>
        collected(await client.chat.completions.create({ model, messages, max_tokens: 8, stream: true }))
      )
      assert.isAbove(chunks.at(-1)?.usage?.total_tokens ?? 0, 0)
      const listed = yield* answered(() => client.models.list())
      assert.isTrue(listed.data.some((entry) => entry.id === model))
      const error = yield* refused(() =>
        client.chat.completions.create({ model: "nobody/has:this", messages })
      )
      assert.include(String(error), "403")
    })

    test("when texts are embedded, then both surfaces give the same vectors, base64 included", function* () {
      const { secret } = yield* newKey()
      const { url } = yield* Gateway
      const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
      const model = yield* modelThatCan(secret, "embedding")
      const input = ["one", "two"]
      const packed = yield* answered(() => client.embeddings.create({ model, input }))
      const plain = yield* answered(() =>
        client.embeddings.create({ model, input, encoding_format: "float" })
      )
      for (const [index, { embedding }] of plain.data.entries()) {
        const other = packed.data[index]?.embedding ?? []
        assert.strictEqual(other.length, embedding.length)
        for (const [i, value] of embedding.entries()) assert.closeTo(other[i] ?? Number.NaN, value, 1e-5)
      }
    })
  }
)
