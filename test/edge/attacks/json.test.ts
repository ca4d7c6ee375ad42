/** docs/hardening.md, B01 to B10: bytes and JSON. A body that gateway and backend could read differently is refused. */
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { routes } from "../../../src/http/routes.ts"
import { hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { chunked, rawPost } from "../../support/RawClient.ts"
import { ask, refused, sent } from "./asking.ts"
import { assertAudited, assertRefusal, unharmed, say } from "./checks.ts"
import { inWorld } from "../../support/testWith.ts"

const plain = hello({ stream: false })

const most = 262_144

/** A chat of exactly `bytes` bytes. */
const sized = (bytes: number): string => {
  const empty = JSON.stringify(hello({ stream: false, messages: [{ role: "user", content: "" }] }))
  return empty.replace('"content":""', `"content":"${"a".repeat(bytes - empty.length)}"`)
}

inWorld(layerGateway())("a request's body", (test) => {
  test("when it is as large as the limit, then it is taken, and beyond it refused unread (B01)", function* () {
    const { secret } = yield* newKey()
    assert.strictEqual(sized(most).length, most)
    assert.strictEqual((yield* ask(secret, sized(most)))?.status, 200)
    yield* Effect.gen(function* () {
      const over = yield* ask(secret, sized(most + 1))
      yield* assertAudited(assertRefusal(over, 413, "one too many"), 413)
      assert.include(over?.body, String(most))
      // Nothing of it need be sent for the answer to come.
      const head = rawPost("/api/chat", secret, "", []).toString().replace("Length: 0", "Length: 300000")
      const unread = yield* say(head, { answers: 1 })
      assertRefusal(unread.responses[0], 413, "unread")
    }).pipe(unharmed)
  })

  test("when it has no length and comes in one chunk, many, or bytes, then the limit is the same (B02)", function* () {
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
      const huge = yield* say(rawPost("/api/chat", secret, "FFFFFFFFFF\r\n{", headers), {
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

  const pack = { gzip: gzipSync, "x-gzip": gzipSync, deflate: deflateSync, zstd: zstdCompressSync }

  test("when it is compressed, then it is what it unpacks to, on every route, and its size counts unpacked (B03)", function* () {
    const { secret } = yield* newKey()
    const takers = routes.filter(({ method }) => method === "POST").filter((route) => !("extra" in route))
    for (const [coding, packed] of Object.entries(pack)) {
      const headers = [`Content-Encoding: ${coding.toUpperCase()}`]
      assert.strictEqual(
        (yield* ask(secret, packed(JSON.stringify(plain)), { headers }))?.status,
        200,
        coding
      )
      for (const { path } of takers) {
        const said = yield* Effect.forEach(
          [ask(secret, "{}", { path }), ask(secret, packed("{}"), { path, headers })],
          Effect.map((response) => JSON.parse(response?.body ?? "").error.message)
        )
        assert.strictEqual(said[1], said[0], `${coding} ${path}`)
      }
      yield* Effect.gen(function* () {
        for (const bytes of [262_145, 50_000_000]) {
          const response = yield* ask(secret, packed(Buffer.alloc(bytes, " ")), { headers })
          yield* assertAudited(assertRefusal(response, 413, coding), 413)
        }
      }).pipe(unharmed)
    }
  })

  test("when it has several codings, one that is not known, or another than it says, then it is refused (B03)", function* () {
    const { secret } = yield* newKey()
    const cases = [
      ["br", brotliCompressSync("{}"), /Content-Encoding: expected one of gzip, deflate and zstd, or none/],
      ["identity, gzip", gzipSync("{}"), /Content-Encoding: expected one of/],
      ["gzip, gzip", gzipSync(gzipSync("{}")), /Content-Encoding: expected one of/],
      ["gzip", Buffer.from("{}"), /body: expected gzip, whole and with nothing behind it/],
      ["zstd", gzipSync("{}"), /body: expected zstd, whole/]
    ] as const
    yield* Effect.gen(function* () {
      for (const [coding, body, why] of cases) {
        const response = yield* ask(secret, body, { headers: [`Content-Encoding: ${coding}`] })
        yield* assertAudited(assertRefusal(response, 400, coding), 400)
        assert.match(response?.text ?? "", why)
      }
    }).pipe(unharmed)
    const identity = yield* ask(secret, JSON.stringify(plain), { headers: ["Content-Encoding: identity"] })
    assert.strictEqual(identity?.status, 200)
  })

  test("when gateway and backend could read it differently, then it is refused, and the refusal says why (B04 B05 B06 B08 B10)", function* () {
    const { secret } = yield* newKey()
    const good = JSON.stringify(plain)
    const bytesAt = (hex: string, marker: string) => {
      const index = good.indexOf(marker)
      return Buffer.concat([
        Buffer.from(good.slice(0, index)),
        Buffer.from(hex, "hex"),
        Buffer.from(good.slice(index))
      ])
    }
    const cases: ReadonlyArray<readonly [string, ReadonlyArray<string | Uint8Array>]> = [
      ["body: missing", [""]],
      [
        "body: expected valid JSON",
        ["  ", "{", `${good}${good}`, `// a\n${good}`, Buffer.from(`\ufeff\ufeff${good}`)]
      ],
      ["body: expected object", ["null", `[${good}]`]],
      [
        "body: expected valid UTF-8",
        ["c0af", "eda080", "ff", "e2", "f8888080"].flatMap((hex) =>
          ["Hello", 'm","messages', "stream"].map((marker) => bytesAt(hex, marker))
        )
      ],
      ["64 levels", [`{"ignored":${"[".repeat(100_000)}`, '{"a":'.repeat(50_000)]],
      ["twice", [`{"model":"other",${good.slice(1)}`, String.raw`{"mode\u006c":"other",` + good.slice(1)]],
      ["model: missing", ['{"__proto__":{"model":"m","messages":[]}}']]
    ]
    for (const [detail, bodies] of cases) {
      for (const message of yield* refused(secret, bodies)) assert.include(message, detail)
    }
    // A byte order mark before it is skipped.
    assert.deepInclude((yield* sent(secret, `\ufeff${good}`)).body, { model: "m:latest" })
  })

  test("when its keys are many, long, like ours or a prototype's, then only what was decided on is sent (B07 B08 B10)", function* () {
    const { secret } = yield* newKey({ models: ["m"] })
    const good = JSON.stringify(plain).slice(1)
    const many = Array.from({ length: 4000 }, (_, i) => `"${i}":1`).join()
    for (const before of [
      many,
      `"${"k".repeat(250_000)}":1`,
      `"ignored":${"9".repeat(250_000)}`,
      ...["Model", "mODEL", "Me\u017f\u017fages", "Keep_Alive"].map((key) => `"${key}":"other"`),
      '"OPTIONS":{"num_predict":99999}',
      '"__proto__":{"num_predict":99999,"keep_alive":-1}',
      '"constructor":{"prototype":{"num_predict":99999}},"toString":1',
      '"options":{"__proto__":{"num_predict":99999,"num_gpu":9}}'
    ]) {
      const { raw, body } = yield* sent(secret, `{${before},${good}`)
      assert.deepStrictEqual(Object.keys(body).sort(), ["messages", "model", "options", "stream"])
      assert.strictEqual(raw.match(/"model"/gi)?.length, 1)
      assert.deepInclude(body, { model: "m:latest", options: { num_predict: 65_536 } })
    }
    yield* refused(secret, [`{"options":{"temperature":1e999},${good}`])
  })
})
