/**
 * Images before a model that takes them: `sees` has a projector, so the server decodes and scales each image as for any
 * other model. No image ends its processes, and one that cannot be read is the client's fault.
 */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { call, newKey } from "../test/support/Gateway.ts"
import { decodablePng, pictures } from "../test/support/pictures.ts"
import { layerOwnGateway } from "./RealGateway.ts"
import { minorVersion, OwnOllama } from "./RealOllama.ts"
import { testWith } from "../test/support/testWith.ts"

const options = { num_predict: 4, seed: 1 }
const chat = (model: string, content: string, ...images: ReadonlyArray<string>) => ({
  model,
  messages: [{ role: "user", content, images }],
  stream: false,
  options
})
const good = decodablePng(64, 48)
const bytesOf = (base64: string) => Buffer.from(base64, "base64")
const cut = (base64: string, bytes: number) => bytesOf(base64).subarray(0, bytes).toString("base64")
const wave = Buffer.from("RIFF0000WAVEfmt ").toString("base64")

/** Before 0.30 the runner ends on an image that it cannot decode. */
const endsOnBrokenImages = Effect.map(Effect.flatMap(OwnOllama, minorVersion), (minor) => minor < 30)

layer(layerOwnGateway(), { excludeTestServices: true, timeout: 600_000 })("images", (it) => {
  const test = testWith(it.effect)

  test("when an image is good, then the answer is the server's own, on both surfaces", function* () {
    const { secret } = yield* newKey()
    const { url } = yield* OwnOllama
    for (const body of [
      chat("sees", "what is it?", good),
      chat("sees", "and these?", good, decodablePng(200, 32)),
      chat("sees", "a large one", decodablePng(4096, 4096))
    ]) {
      const server: unknown = yield* Effect.promise((signal) =>
        fetch(new URL("/api/chat", url), { method: "POST", body: JSON.stringify(body), signal }).then(
          (answer) => answer.json()
        )
      )
      const answer = yield* call("/api/chat", { secret, body })
      assert.strictEqual(answer.status, 200, answer.text)
      const gist = (frame: unknown) =>
        JSON.stringify(frame, (key, value: unknown) =>
          /_at$|duration$|_cached_count$/.test(key) ? 0 : value
        )
      assert.deepStrictEqual(JSON.parse(gist(JSON.parse(answer.text))), JSON.parse(gist(server)))
    }
    const image = { type: "image_url", image_url: { url: `data:image/png;base64,${good}` } }
    const answer = yield* call("/v1/chat/completions", {
      secret,
      body: { model: "sees", messages: [{ role: "user", content: [image] }], max_tokens: 4 }
    })
    assert.strictEqual(answer.status, 200, answer.text)
  })

  test("when an image cannot be read or is too long, then it is a 400 and the server lives", function* () {
    if (yield* endsOnBrokenImages) return
    const { secret } = yield* newKey()
    const server = yield* OwnOllama
    assert.strictEqual((yield* call("/api/chat", { secret, body: chat("sees", "x", good) })).status, 200)
    const before = [server.pid(), ...server.runners()].join()
    const bodies = {
      "no image": chat("sees", "x", "aGVsbG8="),
      "a PNG that is cut off": chat("sees", "x", cut(good, 60)),
      "a PNG without its end": chat("sees", "x", cut(good, bytesOf(good).length - 8)),
      "a JPEG that is cut off": chat("sees", "x", cut(pictures.jpeg(64, 64), 26)),
      "1 by 60,000": chat("sees", "x", decodablePng(1, 60_000)),
      "300,000 by 1": chat("sees", "x", decodablePng(300_000, 1)),
      "40,000 by 400": chat("sees", "x", decodablePng(40_000, 400)),
      WebP: chat("sees", "x", pictures["webp, lossy"](64, 64)),
      sound: chat("sees", "x", wave)
    }
    for (const [what, body] of Object.entries(bodies)) {
      const { status, text } = yield* call("/api/chat", { secret, body })
      assert.strictEqual(status, 400, `${what}: ${text}`)
      assert.match(text, /images|does not support a feature/, what)
      assert.notMatch(text, /llava|runner|sequence/, "nothing of the server shows")
      assert.strictEqual([server.pid(), ...server.runners()].join(), before, what)
    }
    assert.strictEqual((yield* call("/api/chat", { secret, body: chat("sees", "x", good) })).status, 200)
  })

  test("when the server itself refuses an image, then it is a 400 each time and the circuit stays closed", function* () {
    if (yield* endsOnBrokenImages) return
    const { secret } = yield* newKey()
    // Whole by its checksums, and without a single pixel.
    const empty = pictures.png(64, 64)
    for (let i = 0; i < 8; i += 1) {
      for (const stream of [false, true]) {
        const { status, text } = yield* call("/api/chat", {
          secret,
          body: { ...chat("sees", "x", empty), stream }
        })
        assert.strictEqual(status, 400, text)
        assert.include(text, "images: the model server cannot read an image of this request")
      }
    }
    const { status, text } = yield* call("/v1/chat/completions", {
      secret,
      body: {
        model: "sees",
        messages: [
          {
            role: "user",
            content: [{ type: "image_url", image_url: { url: `data:image/png;base64,${empty}` } }]
          }
        ],
        max_tokens: 4
      }
    })
    assert.strictEqual(status, 400, text)
    assert.include(text, "images: the model server cannot read an image of this request")
    assert.strictEqual((yield* call("/api/chat", { secret, body: chat("sees", "x", good) })).status, 200)
  })
})
