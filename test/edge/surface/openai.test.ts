import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import OpenAI from "openai"
import { Registry } from "../../../src/admin/Registry.ts"
import { fake } from "../../support/FakeBackend.ts"
import { eventually, Fake, Gateway, layerGateway, newKey } from "../../support/Gateway.ts"
import { ask, assertRefused, chat, events, json, live } from "./asking.ts"
import { makeStopwatch, atMost } from "../../support/wait.ts"

const path = "/v1/chat/completions"
const streaming = (more: object = {}) => chat({ stream: true, ...more })
const tool = { type: "function", function: { name: "f", parameters: { type: "object" } } }

layer(layerGateway(), live)("the OpenAI surface", (it) => {
  it.effect(
    "when the real client chats, streams, calls tools, embeds and lists, then all work, and it knows each refusal",
    () =>
      Effect.gen(function* () {
        const [{ url }, backend] = [yield* Gateway, yield* Fake]
        const { secret } = yield* newKey({ models: ["m", "embedder"] })
        const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
        const messages = [{ role: "user" as const, content: "Hello" }]
        yield* Effect.promise(async () => {
          const one = await client.chat.completions.create({ model: "m", messages })
          assert.strictEqual(one.choices[0]?.message.content, "Hello world!")
          assert.match(one._request_id ?? "", /^[0-9a-f-]{36}$/)
          let text = ""
          const options = { stream: true, stream_options: { include_usage: true } } as const
          for await (const chunk of await client.chat.completions.create({
            model: "m",
            messages,
            ...options
          })) {
            text += chunk.choices[0]?.delta.content ?? ""
            if (chunk.usage) assert.strictEqual(chunk.usage.total_tokens, 10)
          }
          assert.strictEqual(text, "Hello world!")

          const embed = (encoding_format?: "float" | "base64") =>
            client.embeddings.create({
              model: "embedder",
              input: ["a", "b"],
              ...(encoding_format === undefined ? {} : { encoding_format })
            })
          const floats = await embed("float")
          assert.deepStrictEqual((await embed()).data, floats.data)
          const raw = Buffer.from(String((await embed("base64")).data[1]?.embedding), "base64")
          assert.deepStrictEqual(
            Array.from({ length: raw.length / 4 }, (_, i) => raw.readFloatLE(i * 4)),
            floats.data[1]?.embedding
          )
          assert.deepStrictEqual(
            (await client.models.list()).data.map(({ id }) => id),
            ["m:latest", "embedder:latest"]
          )

          const rejected = (ask: Promise<unknown>) =>
            ask.then(
              () => undefined,
              (error: unknown) => error
            )
          assert.instanceOf(
            await rejected(client.chat.completions.create({ model: "other", messages })),
            OpenAI.PermissionDeniedError
          )
          const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: `tg_${"0".repeat(41)}`, maxRetries: 0 })
          assert.instanceOf(await rejected(stranger.models.list()), OpenAI.AuthenticationError)
        })
        const slow = yield* newKey({ rpm: 1 })
        yield* Effect.promise(async () => {
          const limited = new OpenAI({ baseURL: `${url}/v1`, apiKey: slow.secret, maxRetries: 0 })
          await limited.chat.completions.create({ model: "m", messages })
          const error = await limited.chat.completions
            .create({ model: "m", messages })
            .catch((error: unknown) => error)
          assert.instanceOf(error, OpenAI.RateLimitError)
        })
        backend.script({ does: "stream", lines: [fake.toolCall("f", { a: 1 }), fake.done()] })
        const called = yield* Effect.promise(() =>
          client.chat.completions.create({ model: "m", messages, tools: [{ ...tool, type: "function" }] })
        )
        assert.strictEqual(called.choices[0]?.finish_reason, "tool_calls")
      })
  )

  it.effect(
    "when a stream breaks, then it ends in an error event without [DONE], and the real client throws",
    () =>
      Effect.gen(function* () {
        const [{ url }, backend] = [yield* Gateway, yield* Fake]
        const broken = { does: "stream", lines: [fake.chat("Hel"), fake.error("SECRET")] } as const
        backend.script(broken, broken)
        const answer = yield* ask(path, streaming())
        const { chunks, done } = events(answer)
        assert.isFalse(done)
        assert.notInclude(answer.text, "SECRET")
        assert.deepStrictEqual(chunks.at(-1), {
          error: { message: "model backend unavailable", type: "bad_gateway", code: 502 },
          request_id: answer.headers.get("x-request-id")
        })
        assert.isTrue(chunks.slice(0, -1).every(({ choices }) => choices[0].finish_reason === null))
        const { secret } = yield* newKey()
        const error = yield* Effect.promise(async () => {
          const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
          const messages = [{ role: "user" as const, content: "Hello" }]
          try {
            for await (const _chunk of await client.chat.completions.create({
              model: "m",
              messages,
              stream: true
            }));
            return undefined
          } catch (error) {
            return error
          }
        })
        assert.instanceOf(error, OpenAI.APIError)
      })
  )

  it.effect(
    "when it fails before the first frame, then it is a 502 in JSON, also where a stream was asked for",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        backend.script({ does: "answer", status: 500, body: `{"error":"SECRET"}` })
        const answer = yield* ask(path, streaming())
        assert.strictEqual(answer.status, 502)
        assert.strictEqual(answer.contentType, "application/json")
        assert.notInclude(answer.text, "SECRET")
      })
  )

  it.effect(
    "when a completion is asked for, then it takes one prompt, echoes it, and has log probabilities in the legacy shape",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        const complete = (more: object) => ask("/v1/completions", { model: "m", ...more })
        const one = yield* complete({ prompt: ["a"], suffix: "z" })
        assert.deepInclude(one.sent, { prompt: "a", suffix: "z" })
        assert.match(json(one).id, /^cmpl-/)
        assert.deepInclude(json(one), { object: "text_completion", model: "m" })
        assert.deepStrictEqual(json(one).choices, [
          { text: "Hello world!", index: 0, logprobs: null, finish_reason: "stop" }
        ])
        for (const prompt of [["a", "b"], [1, 2], [[1]], "", null, undefined]) {
          assertRefused(yield* complete({ prompt }), "prompt", JSON.stringify(prompt))
        }
        assert.strictEqual(
          json(yield* complete({ prompt: "Say: ", echo: true })).choices[0].text,
          "Say: Hello world!"
        )
        const { chunks, done } = events(yield* complete({ prompt: "Say: ", echo: true, stream: true }))
        assert.isTrue(done)
        assert.strictEqual(chunks.map(({ choices }) => choices[0].text).join(""), "Say: Hello world!")
        assert.strictEqual(chunks[0].choices[0].text, "Say: Hello")
        assert.deepStrictEqual(chunks.at(-1).usage, {
          prompt_tokens: 7,
          completion_tokens: 3,
          total_tokens: 10
        })

        const logprobs = [
          { token: "Hi", logprob: -0.5, bytes: [72, 105], top_logprobs: [{ token: "Hi", logprob: -0.5 }] }
        ]
        backend.script({
          does: "stream",
          lines: [{ ...fake.generate("Hi"), logprobs }, fake.done("generate")]
        })
        const told = yield* complete({ prompt: "a", logprobs: 1 })
        assert.deepInclude(told.sent, { logprobs: true, top_logprobs: 1 })
        assert.deepStrictEqual(json(told).choices[0].logprobs, {
          tokens: ["Hi"],
          token_logprobs: [-0.5],
          top_logprobs: [{ Hi: -0.5 }],
          text_offset: [0]
        })
      })
  )

  it.effect("when a chat has log probabilities, then they have every field that OpenAI's types require", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const lines = [{ ...fake.chat("Hi"), logprobs: [{ token: "Hi", logprob: -0.5 }] }, fake.done()]
      backend.script({ does: "stream", lines }, { does: "stream", lines })
      const expected = {
        content: [{ token: "Hi", logprob: -0.5, bytes: null, top_logprobs: [] }],
        refusal: null
      }
      const answer = yield* ask(path, chat({ logprobs: true, top_logprobs: 3 }))
      assert.deepStrictEqual(json(answer).choices[0].logprobs, expected)
      assert.deepInclude(answer.sent, { logprobs: true, top_logprobs: 3 })
      const { chunks } = events(yield* ask(path, streaming({ logprobs: true })))
      assert.deepStrictEqual(chunks[0].choices[0].logprobs, expected)
    })
  )

  it.effect(
    "when a budget is spent, then the refusal says how long and that a retry is no use, and the real client returns at once",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Gateway
        const registry = yield* Registry
        const { secret, prefix } = yield* newKey()
        yield* registry.setBudgets(prefix, { day: 0 })
        const answer = yield* eventually(ask(path, chat(), { secret }), ({ status }) => status === 429)
        assert.strictEqual(answer.status, 429, answer.text)
        assert.match(answer.headers.get("retry-after") ?? "", /^[1-9]\d*$/)
        assert.strictEqual(answer.headers.get("x-should-retry"), "false")
        assert.strictEqual(json(answer).error.type, "budget_exceeded")
        const started = makeStopwatch()
        const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret })
        const error = yield* Effect.promise(() =>
          client.embeddings.create({ model: "embedder", input: "a" }).then(
            () => undefined,
            (error: unknown) => error
          )
        )
        assert.instanceOf(error, OpenAI.RateLimitError)
        assert.isBelow(started(), atMost(2000))
      })
  )

  it.effect("when a request is refused, then the id is in header and body alike", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const { secret } = yield* newKey({ rpm: 1 })
      backend.script({ does: "answer", status: 500, body: "" })
      const answers = [
        yield* ask(path, chat(), { secret }),
        yield* ask(path, chat(), { secret }),
        yield* ask(path, chat({ n: 2 })),
        yield* ask(path, chat({ model: "nope" })),
        yield* ask(path, chat(), { secret: "tg_wrong" }),
        yield* ask("/v1/responses", chat())
      ]
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        [502, 429, 400, 403, 401, 403]
      )
      for (const answer of answers) {
        assert.strictEqual(answer.headers.get("x-request-id"), json(answer).request_id)
        assert.strictEqual(json(answer).error.code, answer.status)
      }
      assert.strictEqual(new Set(answers.map((answer) => json(answer).request_id)).size, answers.length)
    })
  )
})
