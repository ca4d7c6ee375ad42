/** docs/hardening.md, "Paths and methods": everything that is not in the route table is a 403. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { makeHintOf } from "../../../src/http/hints.ts"
import { Fake, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawPost, rawRequest } from "../../support/RawClient.ts"
import { assertAudited, assertRefusal, unharmed, say } from "./checks.ts"
import { atMost } from "../../support/wait.ts"
import { inWorld } from "../../support/testWith.ts"

const hintOf = makeHintOf(new Set())

/** What is not in the table byte for byte; `test/unit/http/routes.test.ts` tries every byte of every path. */
const targets = [
  ["P02", "POST", ["/api//pull", "//api/chat", "/api/./chat", "/api/chat/"]],
  ["P03", "POST", ["/api/%70ull", "/api%2fpull", "/api/%63hat", "/api/chat%00", "/api/pull%0d%0aX:1"]],
  ["P04", "POST", ["/API/PULL", "/Api/chat", "/V1/chat/completions"]],
  ["P05", "POST", ["/api/chat/../pull", "/api/pull/../chat", "/api/chat/..%2fpull", "/api\\pull"]],
  ["P06", "POST", ["/api/pull;x", "/api/pull?x", "/api/pull#/healthz", "/api/chat;x", "/api/chat#x"]],
  [
    "P07",
    "POST",
    [
      "http://evil/api/chat",
      "HTTP://gateway//api/chat",
      "http://gateway/api/pull",
      "http://a@gateway/api/chat"
    ]
  ],
  [
    "P07",
    "GET",
    [
      "http://user:pw@gateway/metrics",
      "https://gateway:80/api/tags",
      "http:///api/tags",
      "//gateway/api/tags"
    ]
  ],
  ["P09", "GET", ["/api/%zz", "/%c0%af", `/api/blobs/${"a".repeat(15 * 1024 - 200)}`]],
  ["P10", "PUT", ["/api/chat", "/v1/chat/completions", "/healthz"]],
  ["P10", "OPTIONS", ["*"]],
  ["P11", "GET", ["/", "/v1/models/m", "/api/me", "/api/status", "/v1/files", "/debug/pprof/", "/.env"]],
  ["P11", "POST", ["/v1/responses", "/v1/messages", "/v1/images/generations", "/api/signout"]],
  ["P11", "POST", ["/v1/audio/transcriptions", "/api/experimental/web_fetch"]]
] as const

inWorld(layerGateway())("a target that is not on the list", (test, it) => {
  test("when it is the backend's own management, then it is refused for every method, with and without a key (P01)", function* () {
    const { secret } = yield* newKey()
    const paths = ["pull", "push", "create", "copy", "delete", "blobs/sha256:0000", "ps"]
    const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"]
    const keys = [[], [`Authorization: Bearer ${secret.slice(0, -1)}x`], [`Authorization: Bearer ${secret}`]]
    const cases = paths.flatMap((path) =>
      methods.flatMap((method) => keys.map((headers) => ({ path: `/api/${path}`, method, headers })))
    )
    const seen = yield* Effect.forEach(
      cases,
      ({ path, method, headers }) =>
        Effect.gen(function* () {
          const bodiless = method === "HEAD"
          const { responses, text } = yield* say(rawRequest(method, path, headers), {
            answers: 1,
            bodiless
          })
          const of = `${method} ${path}`
          if (!bodiless) return assertRefusal(responses[0], 403, of)
          assert.strictEqual(responses[0]?.status, 403, of)
          assert.isTrue(text.endsWith("\r\n\r\n"), `${of}: has a body`)
          return responses[0]?.headers.get("x-request-id") ?? ""
        }),
      { concurrency: 4 }
    ).pipe(unharmed)
    assert.strictEqual(new Set(seen).size, cases.length)
    for (const id of seen) yield* assertAudited(id, 403)
  })

  it.effect("when it is nearly that of a route, or another of the backend's, then it is a blocked path", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const cases = targets.flatMap(([row, method, list]) => list.map((target) => ({ row, method, target })))
      for (const { row, method, target } of cases) {
        const head = rawRequest(method, target, [`Authorization: Bearer ${secret}`])
        const { responses } = yield* say(head, { answers: 1 })
        const id = assertRefusal(responses[0], 403, `${row}: ${method} ${target.slice(0, 80)}`)
        assert.isFalse(responses[0]?.headers.has("allow"), "no list of the right methods")
        if (target.startsWith("/"))
          assert.strictEqual(responses[0]?.headers.get("x-hint"), hintOf(method, target), target)
        yield* assertAudited(id, 403)
      }
    }).pipe(unharmed)
  )

  test("when it is absolute and names the Host of the request, then it is taken as its path (P07)", function* () {
    const { secret } = yield* newKey()
    for (const target of ["http://gateway/api/tags", "HTTPS://GATEWAY/api/tags?x=1"]) {
      const head = rawRequest("GET", target, [`Authorization: Bearer ${secret}`])
      const { responses } = yield* say(head, { answers: 1 })
      assert.strictEqual(responses[0]?.status, 200, target)
      yield* assertAudited(responses[0]?.headers.get("x-request-id") ?? "", 200)
    }
  })

  test("when it has bytes that are no ASCII, then the parser or the list refuses it (P04)", function* () {
    for (const target of ["/api/pu\u017f", "/api/chat\u00e4", "/\u212aey"]) {
      const { responses } = yield* say(Buffer.from(rawRequest("POST", target)), { answers: 1 })
      assert.include([400, 403], responses[0]?.status, target)
      assertRefusal(responses[0], responses[0]?.status ?? 0, target)
    }
  })

  test("when it asks for a tunnel or another protocol, then it is refused and nothing hangs (P08)", function* () {
    yield* Effect.gen(function* () {
      const connect = yield* say("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nGET / HTTP/1.1\r\n\r\n")
      assertRefusal(connect.responses[0], 403, "CONNECT")
      assert.strictEqual(connect.responses.length, 1)
      assert.isTrue(connect.closed)
      assert.isBelow(connect.ms, atMost(2000))
      const upgrade = yield* say(
        "GET /api/tags HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" +
          "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        { answers: 1 }
      )
      assertRefusal(upgrade.responses[0], 401, "h2c")
      // Codex tries one, and on a 426 goes on by HTTP at once.
      for (const [target, status] of [
        ["/v1/chat/completions", 426],
        ["/api/generate?x", 426],
        ["/v1/responses", 403],
        ["/v1/realtime", 403],
        ["/v1/embeddings", 403],
        ["/v1/models", 401]
      ] as const) {
        const websocket = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        const { responses } = yield* say(rawRequest("GET", target, websocket), { answers: 1 })
        yield* assertAudited(assertRefusal(responses[0], status, target), status)
        assert.strictEqual(
          responses[0]?.headers.get("upgrade"),
          status === 426 ? "HTTP/1.1" : undefined,
          target
        )
      }
    }).pipe(unharmed)
  })

  test("when it is too long, then it is a 431 (P09), and a method that is none a 400 (P10)", function* () {
    const { responses, closed } = yield* say(rawRequest("GET", `/api/blobs/${"a".repeat(70_000)}`))
    assertRefusal(responses[0], 431, "70 000 characters")
    assert.isTrue(closed)
    assertRefusal((yield* say(rawRequest("BREW", "/api/chat"))).responses[0], 400, "BREW")
  })

  test("when a header names another path or method, then the header is ignored (P13)", function* () {
    const backend = yield* Fake
    const { secret } = yield* newKey()
    const before = backend.requests.length
    const { responses } = yield* say(
      rawPost("/api/chat", secret, JSON.stringify(hello({ stream: false })), [
        "X-Original-URL: /api/pull",
        "X-Rewrite-URL: /api/pull",
        "X-HTTP-Method-Override: DELETE",
        "X-Forwarded-Prefix: /evil"
      ]),
      { answers: 1 }
    )
    assert.strictEqual(responses[0]?.status, 200, responses[0]?.text)
    assert.strictEqual(backend.requests.length, before + 1)
    assert.strictEqual(backend.requests.at(-1)?.path, "/api/chat")
    assert.strictEqual(backend.requests.at(-1)?.method, "POST")
  })
})
