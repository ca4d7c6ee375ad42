import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Fake, Gateway, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawRequest, sendRaw } from "../../support/RawClient.ts"
import { ask, assertRefused, json, live, user, whole } from "./asking.ts"
import { picture as anyPicture } from "../../support/pictures.ts"

const limit = 262_144

/** A chat of exactly `bytes` bytes. */
const sized = (bytes: number): string => {
  const bare = JSON.stringify({ model: "m", stream: false, messages: [user("")] })
  return bare.replace('"content":""', `"content":"${"x".repeat(bytes - bare.length)}"`)
}

layer(layerGateway(), live)("bodies and keys", (it) => {
  it.effect(
    "when a body is at the limit, then it is accepted, with and without Content-Length, and one byte more is not",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Gateway
        const { secret } = yield* newKey()
        const backend = yield* Fake
        const auth = [`Authorization: Bearer ${secret}`, "Content-Type: application/json"]
        const plain = (body: string) =>
          rawRequest("POST", "/api/chat", [...auth, `Content-Length: ${body.length}`], body)
        const chunked = (body: string) =>
          rawRequest(
            "POST",
            "/api/chat",
            [...auth, "Transfer-Encoding: chunked"],
            `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
          )
        for (const [send, how] of [
          [plain, "with a length"],
          [chunked, "chunked"]
        ] as const) {
          const exact = sized(limit)
          assert.strictEqual(Buffer.byteLength(exact), limit)
          assert.strictEqual((yield* sendRaw(url, send(exact))).status, 200, how)
          const before = backend.requests.length
          const refused = yield* sendRaw(url, send(sized(limit + 1)))
          assert.strictEqual(refused.status, 413, how)
          const { error } = JSON.parse(refused.body)
          assert.deepInclude(error, { type: "payload_too_large", code: 413 })
          assert.include(error.message, String(limit))
          assert.strictEqual(backend.requests.length, before, how)
        }
        // Refused at its head: its body is not waited for, so the connection cannot go on.
        const head = rawRequest("POST", "/api/chat", [...auth, `Content-Length: ${limit + 1}`])
        const early = yield* sendRaw(url, head)
        assert.deepStrictEqual([early.status, early.headers.get("connection")], [413, "close"])
      })
  )

  it.effect(
    "when a picture is over the limit, then it is a 413; when it has a data: prefix, then it is for the other surface",
    () =>
      Effect.gen(function* () {
        const picture = (base64: string) =>
          whole({ messages: [{ ...user("what is it?"), images: [base64] }] })
        const large = yield* ask("/api/chat", picture("A".repeat(limit)))
        assert.strictEqual(large.status, 413)
        assert.lengthOf(large.calls, 0)
        for (const image of ["data:image/png;base64,AAAA", "AAA", "AA=A", "A A A A", "____"]) {
          assertRefused(
            yield* ask("/api/chat", picture(image)),
            "messages.0.images.0: expected base64",
            image
          )
          assertRefused(yield* ask("/api/generate", { model: "m", prompt: "x", images: [image] }), "images.0")
        }
        const small = yield* ask("/api/chat", picture(anyPicture))
        assert.deepStrictEqual(small.sent?.["messages"], [{ ...user("what is it?"), images: [anyPicture] }])
      })
  )

  it.effect("when a body has another encoding, charset or type, then it is a 400 about itself", () =>
    Effect.gen(function* () {
      for (const [headers, detail] of [
        [{ "content-type": "text/plain" }, "Content-Type"],
        [{ "content-type": "application/json; charset=latin1" }, "Content-Type"],
        [{ "content-type": "application/json; profile=x" }, "Content-Type"],
        [{ "content-type": `application/json;${" ".repeat(300)}charset=utf-8` }, "Content-Type"],
        [{ "content-encoding": "gzip" }, "Content-Encoding"]
      ] as const) {
        assertRefused(yield* ask("/api/embed", { model: "embedder", input: "a" }, { headers }), detail)
      }
      for (const type of [
        "Application/JSON ;charset=UTF-8",
        'application/json; charset="utf-8"',
        "application/json;"
      ]) {
        const answer = yield* ask("/api/show", { model: "m" }, { headers: { "content-type": type } })
        assert.strictEqual(answer.status, 200, type)
        assert.isArray(json(answer).capabilities)
      }
    })
  )
})
