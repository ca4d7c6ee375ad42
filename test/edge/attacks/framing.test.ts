/** docs/hardening.md, "Framing and connections": no request is smuggled inside another one. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { call, eventually, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawPost } from "../../support/RawClient.ts"
import { assertAudited, assertRefusal, unharmed, say } from "./checks.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const chat = JSON.stringify(hello({ stream: false }))

inWorld(layerGateway())("HTTP framing", (test) => {
  test("when a body has two lengths, then it is refused, and the bytes behind it are never a request (H01)", function* () {
    const { secret, prefix } = yield* newKey()
    const smuggled = rawPost("/api/chat", secret, chat)
    const variants: ReadonlyArray<readonly [string, ReadonlyArray<string>]> = [
      ["CL and TE", ["Content-Length: 4", "Transfer-Encoding: chunked"]],
      ["TE and CL", ["Transfer-Encoding: chunked", "Content-Length: 4"]],
      ["two lengths", ["Content-Length: 4", "Content-Length: 5"]],
      ["one length twice", ["Content-Length: 4", "Content-Length: 4"]],
      ["a list of lengths", ["Content-Length: 4, 4"]],
      ["a spaced list of lengths", ["Content-Length:  5 ,5"]],
      ["a signed length", ["Content-Length: +5"]],
      ["a negative length", ["Content-Length: -1"]],
      ["a hex length", ["Content-Length: 0x5"]],
      ["an exponent length", ["Content-Length: 1e1"]],
      ["a fraction length", ["Content-Length: 4.0"]],
      ["an empty length", ["Content-Length: "]],
      ["a huge length", ["Content-Length: 99999999999999999999999"]],
      ["TE xchunked", ["Transfer-Encoding: xchunked"]],
      ["TE chunked, identity", ["Transfer-Encoding: chunked, identity"]],
      ["TE identity", ["Transfer-Encoding: identity"]],
      ["TE gzip", ["Transfer-Encoding: gzip"]],
      ["TE gzip, chunked", ["Transfer-Encoding: gzip, chunked"]],
      ["TE twice, gzip and chunked", ["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"]],
      ["TE chunked twice", ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"]],
      ["TE quoted", ['Transfer-Encoding: "chunked"']],
      ["TE with a vertical tab", ["Transfer-Encoding: \u000bchunked"]],
      ["TE in HTTP/1.0", ["Transfer-Encoding: chunked", "Connection: keep-alive"]],
      ["TE before a space", ["Transfer-Encoding : chunked"]],
      ["CL before a space", ["Content-Length : 4"]],
      ["TE folded", ["Transfer-Encoding:\r\n chunked"]],
      ["a folded header", ["X-A: b\r\n c", "Content-Length: 4"]],
      ["a bare LF", ["X-A: b\nTransfer-Encoding: chunked", "Content-Length: 4"]],
      ["a bare CR", ["X-A: b\rTransfer-Encoding: chunked", "Content-Length: 4"]],
      ["a NUL", ["X-A: b\u0000", "Content-Length: 4"]],
      ["a header without a name", [": b", "Content-Length: 4"]],
      ["a header with a space in its name", ["X A: b", "Content-Length: 4"]]
    ]
    yield* Effect.gen(function* () {
      for (const [name, headers] of variants) {
        const head = [
          `POST /api/chat HTTP/${name.endsWith("1.0") ? "1.0" : "1.1"}`,
          "Host: h",
          `Authorization: Bearer ${secret}`,
          "Content-Type: application/json",
          ...headers,
          "",
          ""
        ].join("\r\n")
        const { responses, closed } = yield* say(
          Buffer.concat([Buffer.from(`${head}0\r\n\r\n`, "latin1"), smuggled])
        )
        assertRefusal(responses[0], 400, name)
        assert.strictEqual(responses.length, 1, `${name}: a second answer`)
        assert.isTrue(closed, `${name}: still open`)
      }
    }).pipe(unharmed)
    // None of them got so far as to be a chat.
    const rows = yield* sql<{ n: bigint }>`
        SELECT count(*) AS n FROM audit_log WHERE key_prefix = ${prefix} AND status = 200`
    assert.strictEqual(rows[0]?.n, 0n)
  })

  test("when chunks are malformed, then they are refused and the connection ends (H01)", function* () {
    const { secret } = yield* newKey()
    const bodies = [
      ["no hex", "zz\r\n{}\r\n0\r\n\r\n"],
      ["a size too large for anybody", "FFFFFFFFFFFFFFFFFF\r\n{}"],
      ["a negative size", "-2\r\n{}\r\n0\r\n\r\n"],
      ["0x", "0x2\r\n{}\r\n0\r\n\r\n"],
      ["a chunk longer than told", "1\r\n{}\r\n0\r\n\r\n"],
      ["a bare LF", "2\n{}\n0\n\n"],
      ["extensions without end", `2;${"a".repeat(20_000)}\r\n{}\r\n0\r\n\r\n`]
    ] as const
    yield* Effect.gen(function* () {
      for (const [name, body] of bodies) {
        const { responses, closed } = yield* say(
          rawPost("/api/chat", secret, body, ["Transfer-Encoding: chunked"])
        )
        assertRefusal(responses[0], name.startsWith("extensions") ? (responses[0]?.status ?? 0) : 400, name)
        assert.include([400, 413], responses[0]?.status, name)
        assert.strictEqual(responses.length, 1, name)
        assert.isTrue(closed, name)
      }
    }).pipe(unharmed)
  })

  test("when there are two hosts or none, then it is refused, but not for HTTP/1.0 (H01)", function* () {
    const { secret } = yield* newKey()
    const asking = (version: string, hosts: string) =>
      say(`GET /api/version HTTP/${version}\r\n${hosts}Authorization: Bearer ${secret}\r\n\r\n`, {
        answers: 1
      })
    for (const hosts of ["", "Host: a\r\nHost: b\r\n", "Host: a\r\nhost: a\r\n"]) {
      const { responses } = yield* asking("1.1", hosts)
      yield* assertAudited(assertRefusal(responses[0], 400, hosts), 400)
    }
    const { responses } = yield* asking("1.0", "")
    assert.strictEqual(responses[0]?.status, 200, responses[0]?.text)
  })

  test("when a body breaks off, then no slot, no tokens and no error are left behind (H07)", function* () {
    const { secret, prefix } = yield* newKey({ concurrent: 1 })
    // Known from here on, so that the rows to come bear its prefix however early the client leaves.
    yield* call("/api/version", { secret })
    const head = rawPost("/api/chat", secret, "{}", ["X-A: b"])
      .toString("latin1")
      .replace("Content-Length: 2", "Content-Length: 50")
    yield* Effect.gen(function* () {
      yield* say(head, { also: (socket) => socket.end() })
      yield* say(head, {
        also: (socket) => setTimeout(() => socket.resetAndDestroy(), 50)
      })
    }).pipe(unharmed)
    const rows = yield* eventually(
      sql<{
        status: number
      }>`SELECT status FROM audit_log WHERE endpoint = '/api/chat' AND key_prefix = ${prefix}`,
      (rows) => rows.length >= 2
    )
    assert.strictEqual(rows.length, 2)
    assert.isTrue(
      rows.every(({ status }) => status === 400 || status === 499),
      JSON.stringify(rows)
    )
    const after = yield* call("/api/chat", { secret, body: hello({ stream: false }) })
    assert.strictEqual(after.status, 200, after.text)
  })

  test("when a request will be refused, then its client is not told to continue (H09)", function* () {
    const { secret } = yield* newKey()
    const expecting = (key: string | undefined, length: number, expect = "100-continue") =>
      [
        "POST /api/chat HTTP/1.1",
        "Host: h",
        ...(key === undefined ? [] : [`Authorization: Bearer ${key}`]),
        "Content-Type: application/json",
        `Content-Length: ${length}`,
        `Expect: ${expect}`,
        "",
        ""
      ].join("\r\n")
    yield* Effect.gen(function* () {
      for (const [name, head, status] of [
        ["no key", expecting(undefined, 10), 401],
        ["too long", expecting(secret, 262_145), 413],
        ["another expectation", expecting(secret, 10, "a-pony"), 417]
      ] as const) {
        const { responses, closed } = yield* say(head)
        assertRefusal(responses[0], status, name)
        assert.strictEqual(responses.length, 1, name)
        assert.isTrue(closed, name)
      }
    }).pipe(unharmed)
    const { responses } = yield* say(expecting(secret, chat.length), {
      answers: 1,
      also: (socket) => socket.once("data", () => socket.write(chat))
    })
    assert.deepStrictEqual(
      responses.map(({ status }) => status),
      [100, 200]
    )
  })
})
