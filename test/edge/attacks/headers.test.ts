/** docs/hardening.md, H11 to H16: headers. A header that the gateway does not know changes nothing. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Fake, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { chunked, rawPost, rawRequest } from "../../support/RawClient.ts"
import { assertAudited, assertRefusal, unharmed, say } from "./checks.ts"
import { inWorld } from "../../support/testWith.ts"

const chat = JSON.stringify(hello({ stream: false }))

inWorld(layerGateway())("odd headers", (test) => {
  test("when names are odd, headers many or long, or bytes latin-1, then they are handled or refused (H11)", function* () {
    const { secret } = yield* newKey()
    const ask = (...headers: ReadonlyArray<string>) =>
      say(
        Buffer.from(
          rawRequest("GET", "/api/version", [`Authorization: Bearer ${secret}`, ...headers]),
          "latin1"
        )
      )
    yield* Effect.gen(function* () {
      for (const headers of [
        ["__proto__: x", "constructor: y", "toString: z", "hasOwnProperty: w"],
        ["X-Latin: caf\u00e9 \u00ff"],
        [`X-Long: ${"a".repeat(10_000)}`],
        Array.from({ length: 500 }, (_, i) => `X-${i}: ${i}`)
      ]) {
        const { responses } = yield* ask(...headers)
        assert.strictEqual(responses[0]?.status, 200, responses[0]?.text)
      }
      for (const headers of [
        [`X-Long: ${"a".repeat(17_000)}`],
        Array.from({ length: 20_000 }, (_, i) => `X-${i}: ${i}`)
      ]) {
        const { responses, closed } = yield* ask(...headers)
        assertRefusal(responses[0], 431, headers[0]?.slice(0, 10) ?? "")
        assert.isTrue(closed)
      }
      // Beyond the first 2000 headers Node stops looking: a key among them is none.
      const { responses } = yield* ask(...Array.from({ length: 2100 }, () => "a: b"), "X-Last: x")
      assert.notStrictEqual(responses[0]?.status, 500)
      const hidden = yield* say(
        rawRequest("GET", "/api/version", [
          ...Array.from({ length: 2100 }, () => "a: b"),
          `Authorization: Bearer ${secret}`
        ])
      )
      assertRefusal(hidden.responses[0], hidden.responses[0]?.status === 431 ? 431 : 401, "hidden key")
    }).pipe(unharmed)
  })

  test("when a key is not one well-formed Bearer, then it is refused", function* () {
    const backend = yield* Fake
    const [{ secret }, { secret: other }] = [yield* newKey(), yield* newKey()]
    const before = backend.requests.length
    const send = (headers: ReadonlyArray<string>, path = "/api/chat") =>
      say(
        rawRequest(
          "POST",
          path,
          [...headers, "Content-Type: application/json", `Content-Length: ${chat.length}`],
          chat
        )
      )
    for (const headers of [
      [],
      [`Authorization: Bearer  ${secret}`],
      [`Authorization: Bearer ${secret} x`],
      [`Authorization: Bearer\t${secret}`],
      [`Authorization: Basic ${Buffer.from(`x:${secret}`).toString("base64")}`],
      [`Authorization: ${secret}`],
      [`Authorization: Bearer ${secret}`, `Authorization: Bearer ${secret}`],
      [`Authorization: Bearer ${other}`, `Authorization: Bearer ${secret}`],
      [`Authorization: Bearer ${secret}, Bearer ${secret}`],
      [`Authorization: Bearer ${secret.toLowerCase()}`],
      [`Authorization: Bearer ${secret}x`],
      [`X-Api-Key: ${secret}`]
    ]) {
      const { responses } = yield* send(headers)
      assertRefusal(responses[0], 401, headers.join())
      assert.strictEqual(responses[0]?.headers.get("www-authenticate"), "Bearer")
    }
    assertRefusal((yield* send([], `/api/chat?key=${secret}`)).responses[0], 401, "in the query")
    assert.strictEqual(backend.requests.length, before)
    for (const scheme of ["Bearer", "bearer", "BEARER"]) {
      const { responses } = yield* send([`Authorization: ${scheme} ${secret}`])
      assert.strictEqual(responses[0]?.status, 200, scheme)
    }
  })

  test("when a key is in the trailers, then it is no key (H12)", function* () {
    const { secret } = yield* newKey()
    const body = chunked(chat, 20)
      .toString("latin1")
      .replace(/\r\n$/, `Authorization: Bearer ${secret}\r\n\r\n`)
    const { responses } = yield* say(
      rawPost("/api/chat", undefined, body, ["Transfer-Encoding: chunked", "Trailer: Authorization"]),
      { answers: 1 }
    ).pipe(unharmed)
    yield* assertAudited(assertRefusal(responses[0], 401, "trailers"), 401)
  })

  test("when a header is hop-by-hop, then it does not reach the backend and does not take the key away (H13)", function* () {
    const backend = yield* Fake
    const { secret } = yield* newKey()
    const { responses } = yield* say(
      rawPost("/api/chat", secret, chat, [
        "Connection: authorization, x-request-id, close",
        "Proxy-Authorization: Basic eDp5",
        "Keep-Alive: timeout=1",
        "TE: trailers",
        "Cookie: a=b",
        "X-Forwarded-For: 1.2.3.4",
        "Via: x"
      ]),
      { answers: 1 }
    )
    assert.strictEqual(responses[0]?.status, 200, responses[0]?.text)
    assert.deepStrictEqual(Object.keys(backend.requests.at(-1)?.headers ?? {}).sort(), [
      "accept",
      "connection",
      "content-length",
      "content-type",
      "host"
    ])
  })

  test("when a request has ranges, encodings or conditions, then they change nothing (H15)", function* () {
    const { secret } = yield* newKey()
    const { responses } = yield* say(
      rawPost("/api/chat", secret, JSON.stringify(hello()), [
        "Accept-Encoding: gzip, br",
        "Range: bytes=0-1",
        "If-None-Match: *"
      ]),
      { answers: 1 }
    )
    assert.strictEqual(responses[0]?.status, 200)
    assert.isFalse(responses[0]?.headers.has("content-encoding"))
    assert.isFalse(responses[0]?.headers.has("content-range"))
    assert.include(responses[0]?.body, '"done":true')
  })

  test("when a browser asks for CORS, then a preflight is a blocked path and an origin changes nothing (H16)", function* () {
    const { secret } = yield* newKey()
    const origin = "Origin: https://evil"
    const preflight = yield* say(
      rawRequest("OPTIONS", "/v1/chat/completions", [origin, "Access-Control-Request-Method: POST"])
    ).pipe(unharmed)
    assertRefusal(preflight.responses[0], 403, "preflight")
    const { responses } = yield* say(rawPost("/v1/chat/completions", secret, chat, [origin]), {
      answers: 1
    })
    assert.strictEqual(responses[0]?.status, 200)
    assert.isFalse(
      [...(responses[0]?.headers.keys() ?? [])].some((name) => name.startsWith("access-control"))
    )
  })
})
