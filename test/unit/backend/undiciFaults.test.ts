import { once } from "node:events"
import { createServer } from "node:net"
import { assert, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { describe } from "vitest"
import { errorTexts } from "../../../src/backend/ollama/errors.ts"
import { type Behaviour, fake } from "../../support/FakeBackend.ts"
import { freePort } from "../../support/servers/processes.ts"
import { failure, forward, named, run, stream, test, texts, withBackend } from "./calls.ts"

describe("a backend that fails", () => {
  const first = fake.chat("Hello")
  const leaky = "/root/.ollama/models 127.0.0.1:11434"
  // HTTP/1.0 style: the body ends with the connection, whether it was meant to or not.
  const rawHead = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n"
  const cases: ReadonlyArray<readonly [string, Behaviour, string]> = [
    [
      "with 500 and a page",
      { does: "answer", status: 500, body: `<html>${leaky}`, contentType: "text/html" },
      "status"
    ],
    [
      "as unauthorised",
      { does: "answer", status: 401, body: `{"error":"unauthorized","signin_url":"x"}` },
      "status"
    ],
    ["as too many requests", { does: "answer", status: 429 }, "status"],
    ["with a redirect", { does: "answer", status: 302, headers: { location: "/api/chat" } }, "redirect"],
    ["with another 2xx", { does: "answer", status: 204 }, "protocol"],
    ["with html", { does: "answer", status: 200, body: "<html>", contentType: "text/html" }, "protocol"],
    ["with gzip", stream([first], { headers: { "content-encoding": "gzip" } }), "protocol"],
    ["with no body", stream([]), "empty"],
    ["with no body and another type", stream([], { contentType: "application/json" }), "cut"],
    ["with no body that says where it ends", { does: "raw", bytes: rawHead }, "cut"],
    ["with garbage", stream(["Internal error at /root"]), "protocol"],
    ["with half an object", stream([`{"message":{"content":"x"`], { unterminated: true }), "protocol"],
    ["with two objects on a line", stream([JSON.stringify(first) + JSON.stringify(first)]), "protocol"],
    ["with an error line", stream([fake.error(`cuda out of memory ${leaky}`)]), "reported"],
    ["with something that is not HTTP", { does: "raw", bytes: "SSH-2.0-OpenSSH_9.2\r\n" }, "protocol"],
    ["with a reset", { does: "reset" }, "cut"]
  ]
  for (const [how, behaviour, fault] of cases) {
    test(`when it fails ${how} before a frame, then it is a 502 with the fault ${fault}`, function* (backend) {
      backend.script(behaviour)
      assert.strictEqual(yield* failure, fault)
      assert.strictEqual(backend.requests.length, 1)
      assert.strictEqual(yield* texts, "Hello| world|!|")
    })
  }

  for (const [how, behaviour, fault] of [
    ["with an error line", stream([first, fake.error(leaky)]), "reported"],
    [
      "by closing a connection that does not say where the body ends",
      { does: "raw", bytes: `${rawHead}${JSON.stringify(first)}\n` },
      "cut"
    ],
    ["with a refusal that came too late", stream([first, fake.error("unable to shift context")]), "refused"],
    ["with a reset", stream([first], { ends: "reset" }), "cut"],
    ["with a reset inside a frame", stream([first, `{"mess`], { unterminated: true, ends: "reset" }), "cut"],
    ["with garbage", stream([first, "oops"]), "protocol"]
  ] as const) {
    test(`when it fails ${how} after a frame, then the client gets that frame and then the fault ${fault}`, function* (backend) {
      backend.script(behaviour)
      const seen: Array<string> = []
      const frames = yield* forward()
      const error = yield* Effect.flip(
        Stream.runForEach(frames, ({ text }) => Effect.sync(() => seen.push(text)))
      )
      assert.strictEqual(named(error), fault)
      assert.deepStrictEqual(seen, ["Hello"])
    })
  }

  for (const [how, behaviour, frames] of [
    ["after a frame", stream([first]), ["Hello", ""]],
    ["with a frame of a single object", stream([first], { contentType: "application/json" }), ["Hello", ""]],
    ["in words", stream([first, fake.error("prediction aborted, token repeat limit reached")]), ["Hello", ""]]
  ] as const) {
    test(`when it ends cleanly without a final frame ${how}, then the answer ends as length`, function* (backend) {
      backend.script(behaviour)
      const answer = yield* run()
      assert.deepStrictEqual(
        answer.map(({ text }) => text),
        [...frames]
      )
      const last = answer.at(-1)
      assert.deepInclude(last, { done: true, doneReason: "length" })
      assert.notProperty(last, "evalCount")
      assert.strictEqual(yield* texts, "Hello| world|!|")
    })
  }

  test("when a line never ends, then the call is given up before the line fills the memory", function* (backend) {
    backend.script({ does: "flood", line: "x".repeat(65_536) })
    assert.strictEqual(yield* failure, "protocol")
    assert.isBelow(backend.requests[0]?.written ?? 0, 32 * 1024 * 1024)
  })

  it.live("when nobody listens, then the fault is unreachable", () =>
    withBackend(() => Effect.map(failure, (fault) => assert.strictEqual(fault, "unreachable")), {
      url: new URL("http://127.0.0.1:9")
    })
  )

  it.live("when the connection is reset before the request is sent, then the fault is unreachable", () =>
    Effect.scoped(
      Effect.gen(function* () {
        // It ends each handshake of TLS.
        const port = yield* freePort
        const server = createServer((socket) => socket.resetAndDestroy())
        yield* Effect.acquireRelease(
          Effect.promise(() => once(server.listen(port, "127.0.0.1"), "listening")),
          () => Effect.sync(() => server.close())
        )
        const url = new URL(`https://127.0.0.1:${port}`)
        yield* withBackend(() => Effect.map(failure, (fault) => assert.strictEqual(fault, "unreachable")), {
          url
        })
      })
    )
  )

  it.live("when its name is unknown, then the fault is unreachable", () =>
    withBackend(() => Effect.map(failure, (fault) => assert.include(["unreachable", "timeout"], fault)), {
      url: new URL("http://no-such-host.invalid:9")
    })
  )

  test(
    "when it says nothing, then the call is given up in time and its connection closed",
    function* (backend) {
      backend.script({ does: "hang" })
      assert.strictEqual(yield* failure, "timeout")
      yield* backend.until(() => backend.requests[0]?.closedAt !== undefined)
    },
    { firstByteTimeoutMs: 100 }
  )

  test(
    "when it sends a head and nothing else, then the call is given up in time",
    function* (backend) {
      backend.script(stream([], { ends: "hang" }))
      assert.strictEqual(yield* failure, "timeout")
    },
    { firstByteTimeoutMs: 100 }
  )

  test(
    "when it falls silent in a stream, then the call is given up in time",
    function* (backend) {
      backend.script(stream([first], { ends: "hang" }))
      const frames = yield* forward()
      assert.strictEqual(named(yield* Effect.flip(Stream.runDrain(frames))), "timeout")
      yield* backend.until(() => backend.requests[0]?.closedAt !== undefined)
    },
    { idleTimeoutMs: 100 }
  )

  test(
    "when it sends slowly for ever, then the answer is ended after its longest time",
    function* (backend) {
      backend.script(
        stream(
          Array.from({ length: 500 }, () => first),
          { gapMs: 20 }
        )
      )
      const frames = yield* forward()
      assert.strictEqual(named(yield* Effect.flip(Stream.runDrain(frames))), "timeout")
    },
    { maxDurationMs: 150 }
  )

  for (const [text, sentence] of [
    [`registry.ollama.ai/library/x:latest does not support tools`, errorTexts.feature[0]],
    [`the input length exceeds the context length`, errorTexts.context[0]],
    [`json: cannot unmarshal at ${leaky}`, errorTexts.other[0]]
  ] as const) {
    test(`when it refuses with "${text.slice(0, 30)}…", then the client gets our own sentence`, function* (backend) {
      backend.script({ does: "answer", status: 400, body: JSON.stringify({ error: text }) })
      assert.deepInclude(yield* Effect.flip(run()), { _tag: "BadRequest", detail: sentence })
    })
  }

  test("when it is busy, then the client learns when to come back, within a bound", function* (backend) {
    backend.script(
      { does: "answer", status: 503, headers: { "retry-after": "7" } },
      { does: "answer", status: 503 }
    )
    assert.deepInclude(yield* Effect.flip(run()), { fault: "busy", retryAfterS: 7 })
    assert.deepInclude(yield* Effect.flip(run()), { fault: "busy", retryAfterS: 1 })
  })
})
