/** hardening 1.3: body and JSON. What reaches the backend is what was decided on, whatever was sent. */
import { gzipSync } from "node:zlib"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { tagsEntry } from "../../../src/backend/demo/wire.ts"
import type { JsonObject } from "../../../src/domain/Inference.ts"
import { call, Fake, Gateway, hello, installed, layerGateway, newKey } from "../../support/Gateway.ts"
import { chunked, type RawResponse, rawPost, talk } from "../../support/RawClient.ts"
import { assertAudited, assertRefusal, unharmed } from "./checks.ts"

const live = { excludeTestServices: true, timeout: 60_000 } as const

const most = 262_144
const plain = hello({ stream: false })

/** A chat of exactly `bytes` bytes. */
const sized = (bytes: number): string => {
  const empty = JSON.stringify(hello({ stream: false, messages: [{ role: "user", content: "" }] }))
  return empty.replace('"content":""', `"content":"${"a".repeat(bytes - empty.length)}"`)
}

const ask = Effect.fnUntraced(function* (
  secret: string,
  body: string | Uint8Array,
  options: { readonly path?: string; readonly headers?: ReadonlyArray<string> } = {}
) {
  const { url } = yield* Gateway
  const { responses } = yield* talk(
    url,
    rawPost(options.path ?? "/api/chat", secret, body, options.headers ?? ["Connection: close"]),
    { answers: 1, patienceMs: 15_000 }
  )
  return responses[0]
})

/** Each is refused with a 400 about itself; answers the sentences. */
const refused = (secret: string, bodies: ReadonlyArray<string | Uint8Array>, path = "/api/chat") =>
  Effect.forEach(bodies, (body) =>
    Effect.gen(function* () {
      const of = Buffer.from(body).toString("latin1").slice(0, 80)
      const response = yield* ask(secret, body, { path })
      yield* assertAudited(assertRefusal(response, 400, of), 400)
      const message: string = JSON.parse(response?.body ?? "").error.message
      return message
    })
  ).pipe(unharmed)

/** What the backend was sent for `body`, as it reads it. */
const sent = Effect.fnUntraced(function* (secret: string, body: string | JsonObject, path = "/api/chat") {
  const backend = yield* Fake
  const before = backend.requests.length
  const response = yield* ask(secret, typeof body === "string" ? body : JSON.stringify(body), { path })
  assert.strictEqual(response?.status, 200, response?.text)
  assert.strictEqual(backend.requests.length, before + 1)
  const last = backend.requests.at(-1)
  assert.isDefined(last?.body)
  return { raw: last?.raw ?? "", body: last?.body ?? {} }
})

const sizes = (response: RawResponse | undefined) => response?.status

layer(layerGateway(), live)("a request's body", (it) => {
  it.effect("B01 is taken up to the last byte of the limit, and refused unread beyond it", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const { secret } = yield* newKey()
      assert.strictEqual(sized(most).length, most)
      assert.strictEqual(sizes(yield* ask(secret, sized(most))), 200)
      yield* Effect.gen(function* () {
        const over = yield* ask(secret, sized(most + 1))
        yield* assertAudited(assertRefusal(over, 413, "one too many"), 413)
        assert.include(over?.body, String(most))
        // Nothing of it need be sent for the answer to come.
        const head = rawPost("/api/chat", secret, "", []).toString().replace("Length: 0", "Length: 300000")
        const unread = yield* talk(url, head, { answers: 1, patienceMs: 3000 })
        assertRefusal(unread.responses[0], 413, "unread")
      }).pipe(unharmed)
    })
  )

  it.effect("B02 the same without a length: in one chunk, in many, in chunks of a byte", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const { secret } = yield* newKey()
      const headers = ["Transfer-Encoding: chunked"]
      for (const size of [most, 1000]) {
        const whole = yield* ask(secret, chunked(sized(most), size), { headers })
        assert.strictEqual(sizes(whole), 200)
      }
      const dripped = yield* ask(secret, chunked(JSON.stringify(plain), 1), { headers })
      assert.strictEqual(sizes(dripped), 200)
      yield* Effect.gen(function* () {
        for (const size of [most + 1, 1000]) {
          const over = yield* ask(secret, chunked(sized(most + 1), size), { headers })
          yield* assertAudited(assertRefusal(over, 413, `chunks of ${size}`), 413)
        }
        const huge = yield* talk(url, rawPost("/api/chat", secret, "FFFFFFFFFF\r\n{", headers), {
          also: (socket) => {
            const piece = "a".repeat(65_536)
            const timer = setInterval(() => socket.write(piece), 2)
            socket.once("close", () => clearInterval(timer))
          }
        })
        assertRefusal(huge.responses[0], 413, "FFFFFFFFFF")
        assert.isTrue(huge.closed, "goes on reading")
      }).pipe(unharmed)
    })
  )

  it.effect("B03 is never decompressed", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const bomb = gzipSync(Buffer.alloc(50_000_000))
      yield* Effect.gen(function* () {
        for (const encoding of ["gzip", "deflate", "br", "identity, gzip", "x-gzip"]) {
          const response = yield* ask(secret, bomb, { headers: [`Content-Encoding: ${encoding}`] })
          yield* assertAudited(assertRefusal(response, 400, encoding), 400)
        }
      }).pipe(unharmed)
      const identity = yield* ask(secret, JSON.stringify(plain), { headers: ["Content-Encoding: identity"] })
      assert.strictEqual(identity?.status, 200)
    })
  )

  it.effect("B04 is one JSON object and nothing else", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const good = JSON.stringify(plain)
      yield* refused(secret, [
        "",
        "null",
        "[]",
        '"x"',
        "1",
        "{}",
        "  ",
        "\n",
        "true",
        "NaN",
        "undefined",
        "{",
        "}",
        `${good}${good}`,
        `${good},`,
        `${good}x`,
        good.replace("}]", "},]"),
        `/* a */${good}`,
        `// a\n${good}`,
        good.replaceAll('"', "'"),
        `[${good}]`
      ])
    })
  )

  it.effect("B05 is valid UTF-8 without a byte order mark", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const good = JSON.stringify(plain)
      const broken = ["c0af", "eda080", "ff", "e2", "f8888080"].flatMap((hex) => {
        const bytes = Buffer.from(hex, "hex")
        const at = (marker: string) => {
          const index = good.indexOf(marker)
          return Buffer.concat([Buffer.from(good.slice(0, index)), bytes, Buffer.from(good.slice(index))])
        }
        return [at("Hello"), at('m","messages'), at("stream")]
      })
      yield* refused(secret, [Buffer.from(`\ufeff${good}`), Buffer.from(good, "utf16le"), ...broken])
    })
  )

  it.effect("B06 is at most 64 levels deep, wherever", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const lists = (depth: number) => "[".repeat(depth) + "]".repeat(depth)
      const objects = (depth: number) => `${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`
      const inside = (deep: string) => [
        `{"model":"m","ignored":${deep},"messages":[]}`,
        `{"model":"m","options":{"a":${deep}},"messages":[]}`,
        `{"model":"m","messages":[{"role":"user","content":${deep}}]}`,
        `{"model":"m","messages":[],"format":${deep}}`,
        `{"model":"m","messages":[],"tools":${deep}}`
      ]
      const messages = yield* refused(secret, [
        ...inside(lists(100_000)),
        ...inside(objects(40_000)),
        "[".repeat(most),
        '{"a":'.repeat(50_000)
      ])
      assert.isTrue(messages.every((message) => message.includes("64 levels")))
    })
  )

  it.effect("B07 of many keys or long ones is dealt with, long numbers are no numbers of ours", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const keys = (name: (i: number) => string) =>
        `{${Array.from({ length: 15_000 }, (_, i) => `"${name(i)}":1`).join(",")},${JSON.stringify(plain).slice(1)}`
      for (const body of [
        keys((i) => `k${i}`),
        keys(String),
        `{"${"k".repeat(250_000)}":1,${JSON.stringify(plain).slice(1)}`,
        `{"ignored":${"9".repeat(250_000)},${JSON.stringify(plain).slice(1)}`
      ]) {
        const { body: upstream } = yield* sent(secret, body)
        assert.deepStrictEqual(Object.keys(upstream).sort(), ["messages", "model", "options", "stream"])
      }
      yield* refused(secret, [
        `{"options":{"seed":${"9".repeat(250_000)}},${JSON.stringify(plain).slice(1)}`,
        `{"options":{"num_predict":1e400},${JSON.stringify(plain).slice(1)}`,
        `{"options":{"temperature":1e999},${JSON.stringify(plain).slice(1)}`
      ])
    })
  )

  it.effect("B08 says nothing twice: equal keys are refused, look-alikes do not exist", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey({ models: ["m"] })
      const rest = JSON.stringify({ stream: false, messages: plain.messages }).slice(1)
      const messages = yield* refused(secret, [
        `{"model":"m","model":"other",${rest}`,
        `{"model":"other","model":"m",${rest}`,
        String.raw`{"model":"m","mode\u006c":"other",` + rest,
        String.raw`{"\u006dodel":"other","model":"m",` + rest,
        `{"model":"m","options":{"num_predict":1,"num_predict":99999},${rest}`,
        `{"model":"m","options":{},"options":{"num_predict":99999},${rest}`
      ])
      assert.isTrue(messages.every((message) => message.includes("twice")))
      const folded = [
        "Model",
        "MODEL",
        "mODEL",
        "Stream",
        "MESSAGES",
        "Options",
        "Me\u017f\u017fages",
        "Keep_Alive"
      ]
      for (const key of folded) {
        for (const body of [
          `{"model":"m","${key}":"other",${rest}`,
          `{"${key}":{"num_predict":99999},"model":"m",${rest}`
        ]) {
          const { raw, body: upstream } = yield* sent(secret, body)
          assert.strictEqual(upstream["model"], "m:latest")
          assert.strictEqual(raw.match(/"model"/gi)?.length, 1)
          assert.deepStrictEqual(upstream["options"], { num_predict: 4096 })
        }
      }
    })
  )

  it.effect("B10 pollutes no prototype and smuggles nothing through one", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const good = JSON.stringify(plain).slice(1)
      for (const body of [
        `{"__proto__":{"num_predict":99999,"keep_alive":-1},${good}`,
        `{"constructor":{"prototype":{"num_predict":99999}},"toString":1,${good}`,
        `{"options":{"__proto__":{"num_predict":99999,"num_gpu":9}},${good}`,
        `{"format":{"__proto__":{"x":1},"type":"object"},${good}`,
        good.replace('"role"', '"__proto__":{"images":["x"]},"role"').replace(/^/, "{")
      ]) {
        const { body: upstream } = yield* sent(secret, body)
        assert.deepStrictEqual(upstream["options"], { num_predict: 4096 }, body)
        assert.isUndefined(upstream["keep_alive"])
        assert.isUndefined(Reflect.get({}, "num_predict"))
        assert.isUndefined(Reflect.get({}, "x"))
      }
      yield* refused(secret, ['{"__proto__":{"model":"m","messages":[]}}'])
    })
  )

  it.effect("B11 a model is shown under the one name that was decided on, without its secrets", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey({ models: ["m"] })
      const path = "/api/show"
      for (const body of ['{"model":"m","name":"other","verbose":true}', '{"name":"m","Model":"other"}']) {
        const { raw } = yield* sent(secret, body, path)
        assert.strictEqual(raw, '{"model":"m:latest"}')
      }
      const response = yield* ask(secret, '{"model":"m"}', { path })
      const shown = JSON.parse(response?.body ?? "")
      for (const key of ["system", "template", "modelfile", "messages", "remote_host", "remote_model"]) {
        assert.notProperty(shown, key)
      }
      const other = yield* ask(secret, '{"name":"other"}', { path }).pipe(unharmed)
      yield* assertAudited(assertRefusal(other, 403, "other"), 403)
      yield* refused(secret, ['{"model":"m","model":"other"}', '{"model":1}', "{}", '{"name":[]}'], path)
    })
  )

  it.effect("B12 a model's name is a string, and any string is refused without a trace of damage", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const asking = (model: unknown) => JSON.stringify(hello({ stream: false, model }))
      yield* refused(secret, [1, null, [], {}, "", true, ["m"]].map(asking))
      yield* Effect.gen(function* () {
        const bodies = new Set<string>()
        for (const [name, stored] of [
          ["a\u0000b", "ab"],
          ["a\nb\u001b[31m", "ab[31m"],
          ["m\u200b", "m\u200b"],
          ["\u202em", "m"],
          ["м", "м"],
          ["ｍ", "ｍ"],
          ["e\u0301", "e\u0301"],
          ["x".repeat(200_000), "x".repeat(128)],
          ["'; DROP TABLE audit_log; --", "'; DROP TABLE audit_log; --"]
        ] as const) {
          const response = yield* ask(secret, asking(name))
          const id = assertRefusal(response, 403, name.slice(0, 20))
          bodies.add((response?.body ?? "").replaceAll(id, ""))
          const row = yield* assertAudited(id, 403)
          assert.strictEqual(row?.model, stored)
        }
        // Half a character: JSON can say it, Postgres cannot store it.
        const lone = yield* ask(secret, asking("X").replace('"X"', String.raw`"\ud800"`))
        const row = yield* assertAudited(assertRefusal(lone, 403, "lone surrogate"), 403)
        assert.strictEqual(row?.model, "\ufffd")
        assert.strictEqual(bodies.size, 1, "refusals differ")
      }).pipe(unharmed)
    })
  )

  it.effect("B13 only the discovered name is the model, or the name without its :latest", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      for (const name of ["m", "m:latest"]) {
        const { body } = yield* sent(secret, hello({ stream: false, model: name }))
        assert.strictEqual(body["model"], "m:latest")
      }
      yield* Effect.gen(function* () {
        for (const name of [
          "M",
          "M:latest",
          "m:LATEST",
          "library/m",
          "library/m:latest",
          "registry.ollama.ai/library/m:latest",
          "https://registry.ollama.ai/library/m",
          " m",
          "m ",
          "m:",
          ":latest",
          "m:latest:latest",
          "m@sha256-00",
          "m:cloud",
          "m-cloud",
          "./m",
          "../m",
          "m/",
          "m\\",
          "m%00",
          "m#"
        ]) {
          const response = yield* ask(secret, JSON.stringify(hello({ stream: false, model: name })))
          assertRefusal(response, 403, name)
        }
      }).pipe(unharmed)
    })
  )

  it.effect("B14 models that live elsewhere are not there, not even for a tenant with all of them", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const { secret } = yield* newKey()
      const entry = (name: string, more: JsonObject) => ({ ...tagsEntry(name, ["completion"]), ...more })
      backend.setModels([
        ...installed,
        entry("hosted:latest", { remote_host: "https://ollama.com:443" }),
        entry("aliased:latest", { remote_model: "gpt" }),
        "gpt-oss:120b-cloud",
        "kimi:cloud"
      ])
      yield* Effect.addFinalizer(() => Effect.sync(() => backend.setModels(installed)))
      // Two refreshes: the list is the new one by then.
      const before = backend.lookups.length
      yield* backend.until(() => backend.lookups.length >= before + 2)
      const listed = yield* call("/api/tags", { secret })
      for (const name of ["hosted:latest", "aliased", "gpt-oss:120b-cloud", "kimi:cloud"]) {
        assert.notInclude(listed.text, name)
        const response = yield* ask(secret, JSON.stringify(hello({ stream: false, model: name }))).pipe(
          unharmed
        )
        assertRefusal(response, 403, name)
      }
    }).pipe(Effect.scoped)
  )

  it.effect(
    "B15 B16 a client neither loads, unloads nor reshapes the model, and options are of their type",
    () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey()
        for (const keep_alive of [0, -1, "9999h", "0s"]) {
          const { body } = yield* sent(secret, hello({ stream: false, keep_alive }))
          assert.isUndefined(body["keep_alive"])
        }
        const pinning = {
          num_ctx: 1e9,
          num_gpu: 99,
          num_thread: 10_000,
          num_batch: 1,
          use_mmap: false,
          main_gpu: 3,
          num_keep: 5,
          seed: 7,
          temperature: 0.5,
          unheard_of: { a: 1 },
          low_vram: true,
          numa: true
        }
        const { body } = yield* sent(secret, hello({ stream: false, options: pinning }))
        assert.deepStrictEqual(body["options"], { num_keep: 5, seed: 7, temperature: 0.5, num_predict: 4096 })
        const bad = [
          { seed: "x" },
          { seed: 1.5 },
          { temperature: "1" },
          { top_k: [] },
          { num_ctx: "1" },
          { num_predict: 4097 },
          { num_predict: 0 },
          { num_predict: 1.5 },
          { num_predict: "1" },
          { stop: Array.from({ length: 1000 }, () => "x") },
          { stop: "x" },
          { stop: [1] },
          []
        ]
        yield* refused(
          secret,
          bad.map((options) => JSON.stringify(hello({ stream: false, options })))
        )
        const negative = yield* sent(secret, hello({ stream: false, options: { num_predict: -1 } }))
        assert.deepStrictEqual(negative.body["options"], { num_predict: 4096 })
      })
  )

  it.effect("B17 fields pass, are dropped or are refused as the contract says", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const asking = (more: JsonObject) => ({ model: "m", prompt: "p", stream: false, ...more })
      const kept = { system: "s", suffix: "x", context: [1, 2, 3], format: { type: "object" } }
      const { body } = yield* sent(secret, asking(kept), "/api/generate")
      assert.deepInclude(body, kept)
      const dropped = { template: "", shift: true, _debug_render_only: true, keep_alive: -1, unheard_of: 1 }
      const without = yield* sent(secret, asking(dropped), "/api/generate")
      for (const key of Object.keys(dropped)) assert.isUndefined(without.body[key], key)
      yield* refused(
        secret,
        [
          { template: "{{ .System }}" },
          { raw: "yes" },
          { context: ["a"] },
          { context: [-1] },
          { images: ["http://evil/"] },
          { images: "aGk=" },
          { format: 5 },
          { think: "much" },
          { top_logprobs: 1e9 },
          { logprobs: 1 },
          { system: {} },
          { prompt: [] }
        ].map((more) => JSON.stringify(asking(more))),
        "/api/generate"
      )
    })
  )

  it.effect("B18 stream is a boolean; absent it is true on /api and false on /v1, null is absent", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const asking = (stream: unknown) => JSON.stringify(hello({ stream }))
      for (const path of ["/api/chat", "/v1/chat/completions"]) {
        yield* refused(secret, ["false", 1, 0, {}, []].map(asking), path)
      }
      const types = new Map([
        ["/api/chat", "application/x-ndjson"],
        ["/v1/chat/completions", "application/json"]
      ])
      for (const [path, type] of types) {
        for (const stream of [undefined, null]) {
          const response = yield* ask(secret, asking(stream), { path })
          assert.strictEqual(response?.status, 200, response?.text)
          assert.include(response?.headers.get("content-type"), type)
        }
      }
    })
  )

  it.effect("B19 messages are messages, however many", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const asking = (messages: unknown) => JSON.stringify({ model: "m", stream: false, messages })
      yield* refused(secret, [
        asking(Array.from({ length: 80_000 }, () => ({}))),
        asking([{ role: "root", content: "x" }]),
        asking([{ role: "user", content: [{ type: "text", text: "parts are the other surface's" }] }]),
        asking([{ role: "user", content: 5 }]),
        asking(["x"]),
        asking({ role: "user" })
      ])
      const many = Array.from({ length: 6000 }, () => ({ role: "user", content: "x" }))
      assert.strictEqual((yield* ask(secret, asking(many)))?.status, 200)
      // On the native surface no messages load the model and say so; on /v1 they are an error (ollama-wire §3.1).
      yield* refused(secret, [asking([])], "/v1/chat/completions")
    })
  )

  it.effect("B21 says that it is JSON in UTF-8, once", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const { secret } = yield* newKey()
      const body = JSON.stringify(plain)
      yield* Effect.gen(function* () {
        for (const type of [
          "text/plain",
          "application/json; charset=utf-16",
          "multipart/form-data; boundary=x",
          "*/*",
          "json",
          "application/x-www-form-urlencoded",
          "application/json, text/plain",
          "application/jsonp",
          "application/json; charset=utf-8; charset=utf-16",
          "application/json; x=y"
        ]) {
          assertRefusal(yield* ask(secret, body, { headers: [`Content-Type: ${type}`] }), 400, type)
        }
        const twice = ["Content-Type: application/json", "Content-Type: text/plain"]
        assertRefusal(yield* ask(secret, body, { headers: twice }), 400, "two of them")
        const none = rawPost("/api/chat", secret, body)
          .toString()
          .replace(/Content-Type.*\r\n/, "")
        const { responses } = yield* talk(url, none, { answers: 1 })
        assertRefusal(responses[0], 400, "none")
      }).pipe(unharmed)
      for (const type of [
        "APPLICATION/JSON",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"'
      ]) {
        const response = yield* ask(secret, body, { headers: [`Content-Type: ${type}`] })
        assert.strictEqual(response?.status, 200, type)
      }
    })
  )

  it.effect("B22 one answer is what there is on /v1, and no field leads anywhere else", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const asking = (more: JsonObject) => JSON.stringify(hello(more))
      yield* refused(secret, [{ n: 100 }, { n: 0 }, { n: "1" }].map(asking), "/v1/chat/completions")
      yield* refused(
        secret,
        [{ best_of: 2 }, { n: 2 }].map((more) => JSON.stringify({ model: "m", prompt: "p", ...more })),
        "/v1/completions"
      )
      const routing = {
        api_base: "http://evil/",
        base_url: "http://evil/",
        api_key: "x",
        user: "u",
        n: 1,
        extra_body: { model: "other" },
        extra_headers: { host: "evil" },
        stream_options: { include_usage: true }
      }
      const { raw, body } = yield* sent(secret, hello(routing), "/v1/chat/completions")
      assert.notInclude(raw, "evil")
      assert.strictEqual(body["model"], "m:latest")
      assert.deepStrictEqual(Object.keys(body).sort(), ["messages", "model", "options", "stream"])
    })
  )
})
