/** docs/hardening.md, "Paths and methods": everything that is not in the route table is a 403. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Fake, Gateway, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawPost, rawRequest, talk } from "../../support/RawClient.ts"
import { assertAudited, assertRefusal, unharmed } from "./checks.ts"
import { atMost } from "../../support/wait.ts"

const live = { excludeTestServices: true } as const

/** Every one is refused as a blocked path, with a valid key, before anything else is looked at. */
const blocked = (secret: string, targets: ReadonlyArray<readonly [method: string, target: string]>) =>
  Effect.gen(function* () {
    const { url } = yield* Gateway
    for (const [method, target] of targets) {
      const { responses } = yield* talk(
        url,
        rawRequest(method, target, [`Authorization: Bearer ${secret}`]),
        { answers: 1 }
      )
      const id = assertRefusal(responses[0], 403, `${method} ${target.slice(0, 80)}`)
      yield* assertAudited(id, 403)
    }
  }).pipe(unharmed)

const get = (...targets: ReadonlyArray<string>) => targets.map((target) => ["GET", target] as const)
const post = (...targets: ReadonlyArray<string>) => targets.map((target) => ["POST", target] as const)

/** What is not in the table byte for byte. */
const targets: Readonly<Record<string, ReadonlyArray<readonly [method: string, target: string]>>> = {
  "has extra slashes and dots (P02)": post(
    "/api//pull",
    "//api/pull",
    "/api/./pull",
    "/./api/pull",
    "/api/pull/",
    "/api/pull//",
    "/api//chat",
    "//api/chat",
    "/api/./chat",
    "/./api/chat",
    "/api/chat/",
    "/api/chat//"
  ),
  "is percent-encoded (P03)": post(
    "/api/%70ull",
    "/%61pi/pull",
    "/api%2fpull",
    "/api/pull%00",
    "/api/pull%20",
    "/api/pull%0d%0aX:1",
    "/api/%63hat",
    "/api%2Fchat",
    "/api/chat%00",
    "/api/chat%20"
  ),
  "has another case (P04)": [
    ...post("/API/PULL", "/Api/Pull", "/API/CHAT", "/V1/chat/completions"),
    ...get("/HEALTHZ", "/Metrics")
  ],
  "has dot segments or backslashes (P05)": post(
    "/api/chat/../pull",
    "/api/chat/%2e%2e/pull",
    "/api/chat/..%2fpull",
    "/api\\pull",
    "/\\evil/api/chat",
    "/x/../api/chat",
    "/api/pull/../chat"
  ),
  "has a query or a fragment (P06)": [
    ...post("/api/pull;x", "/api/pull?x", "/api/pull#/healthz", "/api/chat;x", "/api/chat#x"),
    ...get("/healthz;/api/pull", "/healthz#", "/metrics;")
  ],
  "is absolute, whatever it names (P07)": [
    ...post(
      "http://evil/api/chat",
      "http://h/api/chat/../pull",
      "HTTP://h//api/pull",
      "http://gateway/api/chat"
    ),
    ...get("http://user:pw@h/metrics", "http://gateway/healthz", "https://gateway/api/tags")
  ],
  "has malformed escapes or is long (P09)": get(
    "/api/%zz",
    "/%",
    "/%c0%af",
    ...[101, 1000, 15 * 1024 - 200].map((size) => `/api/blobs/${"a".repeat(size)}`)
  ),
  "has another method (P10)": [
    ["GET", "/api/chat"],
    ["PUT", "/v1/chat/completions"],
    ["POST", "/api/tags"],
    ["DELETE", "/v1/models/x"],
    ["PUT", "/healthz"],
    ["OPTIONS", "*"]
  ],
  "is served by the backend beyond the list (P11)": [
    ...get("/", "/v1/models/m", "/api/me", "/api/status", "/v1/files", "/debug/pprof/", "/.env"),
    ...post(
      "/v1/responses",
      "/v1/messages",
      "/v1/images/generations",
      "/v1/audio/transcriptions",
      "/api/me",
      "/api/signout",
      "/api/experimental/web_fetch",
      "/api/experimental/web_search"
    )
  ]
}

layer(layerGateway(), live)("a target that is not on the list", (it) => {
  it.effect(
    "when it is the backend's own management, then it is refused for every method, with and without a key (P01)",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Gateway
        const { secret } = yield* newKey()
        const paths = [
          "/api/pull",
          "/api/push",
          "/api/create",
          "/api/copy",
          "/api/delete",
          "/api/blobs/sha256:0000",
          "/api/ps"
        ]
        const methods = [
          "GET",
          "HEAD",
          "POST",
          "PUT",
          "PATCH",
          "DELETE",
          "OPTIONS",
          "TRACE",
          "QUERY",
          "PROPFIND",
          "PURGE",
          "LINK"
        ]
        const keys = [
          [],
          [`Authorization: Bearer ${secret.slice(0, -1)}x`],
          [`Authorization: Bearer ${secret}`]
        ]
        const cases = paths.flatMap((path) =>
          methods.flatMap((method) => keys.map((headers) => ({ path, method, headers })))
        )
        const seen = yield* Effect.forEach(
          cases,
          ({ path, method, headers }) =>
            Effect.gen(function* () {
              const bodiless = method === "HEAD"
              const { responses, text } = yield* talk(url, rawRequest(method, path, headers), {
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
        assert.strictEqual(new Set(seen).size, 7 * 12 * 3)
        for (const id of seen) yield* assertAudited(id, 403)
      })
  )

  for (const [what, list] of Object.entries(targets)) {
    it.effect(`when it ${what}, then it is a blocked path`, () =>
      Effect.flatMap(newKey(), ({ secret }) => blocked(secret, list))
    )
  }

  it.effect("when it has bytes that are no ASCII, then the parser or the list refuses it (P04)", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      for (const target of ["/api/pu\u017f", "/api/chat\u00e4", "/\u212aey"]) {
        const { responses } = yield* talk(url, Buffer.from(rawRequest("POST", target)), { answers: 1 })
        assert.include([400, 403], responses[0]?.status, target)
        assertRefusal(responses[0], responses[0]?.status ?? 0, target)
      }
    })
  )

  it.effect("when a path that is served has a query, then the query does nothing (P06)", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const { responses } = yield* talk(url, rawRequest("GET", "/healthz?/../api/pull"), { answers: 1 })
      assert.strictEqual(responses[0]?.status, 200)
    })
  )

  it.effect("when it asks for a tunnel or another protocol, then it is refused and nothing hangs (P08)", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      yield* Effect.gen(function* () {
        const connect = yield* talk(
          url,
          "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        )
        assertRefusal(connect.responses[0], 403, "CONNECT")
        assert.strictEqual(connect.responses.length, 1)
        assert.isTrue(connect.closed)
        assert.isBelow(connect.ms, atMost(2000))
        const preface = yield* talk(url, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assertRefusal(preface.responses[0], 400, "PRI")
        assert.isTrue(preface.closed)
        assert.isBelow(preface.ms, atMost(2000))
        const upgrade = yield* talk(
          url,
          "GET /api/tags HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" +
            "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
          { answers: 1 }
        )
        assertRefusal(upgrade.responses[0], 401, "h2c")
      }).pipe(unharmed)
    })
  )

  it.effect("when it is too long, then it is a 431 (P09)", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const { responses, closed } = yield* talk(url, rawRequest("GET", `/api/blobs/${"a".repeat(70_000)}`))
      assertRefusal(responses[0], 431, "70 000 characters")
      assert.isTrue(closed)
    })
  )

  it.effect("when its method is wrong, then no list of the right ones is given (P10)", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const { responses } = yield* talk(url, rawRequest("GET", "/api/chat"), { answers: 1 })
      assert.isFalse(responses[0]?.headers.has("allow"))
      const unknown = yield* talk(url, rawRequest("BREW", "/api/chat"))
      assertRefusal(unknown.responses[0], 400, "BREW")
    })
  )

  it.effect("when a header names another path or method, then the header is ignored (P13)", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const backend = yield* Fake
      const { secret } = yield* newKey()
      const before = backend.requests.length
      const { responses } = yield* talk(
        url,
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
  )
})
