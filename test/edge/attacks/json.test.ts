/** docs/hardening.md, B01 to B10: bytes and JSON. A body that gateway and backend could read differently is refused. */
import { gzipSync } from "node:zlib"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Gateway, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { chunked, rawPost, talk } from "../../support/RawClient.ts"
import { ask, refused, sent } from "./asking.ts"
import { assertAudited, assertRefusal, unharmed } from "./checks.ts"

const live = { excludeTestServices: true } as const

const plain = hello({ stream: false })

const most = 262_144

/** A chat of exactly `bytes` bytes. */
const sized = (bytes: number): string => {
  const empty = JSON.stringify(hello({ stream: false, messages: [{ role: "user", content: "" }] }))
  return empty.replace('"content":""', `"content":"${"a".repeat(bytes - empty.length)}"`)
}

layer(layerGateway(), live)("a request's body", (it) => {
  it.effect("when it is as large as the limit, then it is taken, and beyond it refused unread (B01)", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const { secret } = yield* newKey()
      assert.strictEqual(sized(most).length, most)
      assert.strictEqual((yield* ask(secret, sized(most)))?.status, 200)
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

  it.effect(
    "when it has no length and comes in one chunk, many, or bytes, then the limit is the same (B02)",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Gateway
        const { secret } = yield* newKey()
        const headers = ["Transfer-Encoding: chunked"]
        for (const size of [most, 1000]) {
          const whole = yield* ask(secret, chunked(sized(most), size), { headers })
          assert.strictEqual(whole?.status, 200)
        }
        const dripped = yield* ask(secret, chunked(JSON.stringify(plain), 1), { headers })
        assert.strictEqual(dripped?.status, 200)
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

  it.effect("when it is compressed, then it is never decompressed (B03)", () =>
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

  it.effect("when it is anything but one JSON object, then it is refused (B04)", () =>
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

  it.effect("when it is not valid UTF-8, or begins with a byte order mark, then it is refused (B05)", () =>
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

  it.effect("when it has more than 64 levels anywhere, then it is refused (B06)", () =>
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

  it.effect("when it has many keys or long ones, then it is handled, and long numbers do no harm (B07)", () =>
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

  it.effect(
    "when it says a key twice, then it is refused, also when one of them is spelled with escapes (B08)",
    () =>
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
            assert.deepStrictEqual(upstream["options"], { num_predict: 65_536 })
          }
        }
      })
  )

  it.effect(
    "when it names a prototype, then no prototype is changed and nothing passes through it (B10)",
    () =>
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
          assert.deepStrictEqual(upstream["options"], { num_predict: 65_536 }, body)
          assert.isUndefined(upstream["keep_alive"])
          assert.isUndefined(Reflect.get({}, "num_predict"))
          assert.isUndefined(Reflect.get({}, "x"))
        }
        yield* refused(secret, ['{"__proto__":{"model":"m","messages":[]}}'])
      })
  )
})
