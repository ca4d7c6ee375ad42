/** Real sockets. The app of these tests answers when it is told to. */
import type { IncomingMessage, ServerResponse } from "node:http"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { GatewayServer, maxDropped } from "../../../../src/http/server/GatewayServer.ts"
import type { MalformedReason } from "../../../../src/observability/Metrics.ts"
import { dialled } from "../../../support/nodeServer.ts"
import { comesTrue } from "../../../support/wait.ts"
import { testWith } from "../../../support/testWith.ts"

interface Begun {
  readonly path: string
  readonly response: ServerResponse
}

const makeWorld = Effect.gen(function* () {
  const refused: Array<MalformedReason> = []
  const begun: Array<Begun> = []
  let draining = false
  const server = new GatewayServer({
    refused: (reason) => void refused.push(reason),
    isDraining: () => draining
  })
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    begun.push({ path: request.url ?? "", response })
  })
  const dial = yield* dialled(server)
  return { begun, dial, refused, drain: () => void (draining = true) }
})

const until = (holds: () => boolean) => Effect.map(comesTrue(holds), (came) => assert.isTrue(came))
const requests = (count: number) =>
  Array.from({ length: count }, (_, i) => `GET /${i} HTTP/1.1\r\nHost: h\r\n\r\n`).join("")
const answers = (text: string) => text.split("HTTP/1.1 ").length - 1

const test = testWith(it.live)

test("when a request comes after the answer to the one before it, then both are answered on one connection", function* () {
  const { begun, dial, refused } = yield* makeWorld
  const { heard, socket } = yield* dial()
  for (let n = 1; n <= 3; n += 1) {
    socket.write(requests(1))
    yield* until(() => begun.length === n)
    begun[n - 1]?.response.end("ok")
    yield* until(() => answers(heard()) === n)
  }
  assert.isFalse(socket.destroyed)
  assert.notInclude(heard(), "Connection: close")
  assert.deepStrictEqual(refused, [])
})

for (const late of [false, true]) {
  test(`when a second request is pipelined ${late ? "after the head of the first answer" : "at once"}, then the first answer is whole, the second request is never started, and the connection ends`, function* () {
    const { begun, dial, refused } = yield* makeWorld
    const { heard, socket } = yield* dial()
    socket.write(requests(late ? 1 : 5))
    yield* until(() => begun.length === 1)
    if (late) {
      begun[0]?.response.write("first ")
      yield* until(() => heard().includes("first "))
      socket.write(requests(5))
    }
    yield* until(() => refused.length === 1)
    begun[0]?.response.end("answer")
    yield* until(() => socket.destroyed)
    assert.strictEqual(answers(heard()), 1)
    assert.include(heard(), "answer")
    assert.strictEqual(/^connection: close/im.test(heard()), !late)
    assert.strictEqual(begun.length, 1)
    assert.deepStrictEqual(refused, ["pipelined"])
  })
}

test("when a body is pipelined behind a request, then its connection ends after the first answer too", function* () {
  const { begun, dial } = yield* makeWorld
  const { heard, socket } = yield* dial()
  socket.write(
    `${requests(1)}POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n${"x".repeat(500_000)}`
  )
  yield* until(() => begun.length === 1)
  begun[0]?.response.end("answer")
  yield* until(() => socket.destroyed)
  assert.include(heard(), "answer")
  assert.strictEqual(begun.length, 1)
})

for (const [what, more] of [
  ["requests", requests(3)],
  ["bytes that are no request", "\u0001garbage\r\n\r\n"]
] as const) {
  test(`when ${what} come while a large answer is written, and nobody reads them, then the answer is whole all the same`, function* () {
    const { begun, dial, refused } = yield* makeWorld
    const { heard, socket } = yield* dial()
    socket.pause()
    socket.write(requests(2))
    yield* until(() => refused.length === 1)
    socket.write(more)
    // The kernel takes all of it, so the answer is over for the server.
    begun[0]?.response.end("a".repeat(2_000_000))
    yield* Effect.sleep("50 millis")
    socket.resume()
    yield* until(() => socket.destroyed)
    assert.strictEqual(heard().length - heard().indexOf("\r\n\r\n") - 4, 2_000_000)
    assert.strictEqual(begun.length, 1)
  })
}

test("when many requests come at once, then the connection is destroyed, and only one was started", function* () {
  const { begun, dial, refused } = yield* makeWorld
  const { heard, socket } = yield* dial()
  socket.write(requests(2 + maxDropped))
  yield* until(() => socket.destroyed)
  assert.strictEqual(heard(), "")
  assert.strictEqual(begun.length, 1)
  assert.deepStrictEqual(refused, ["pipelined"])
})

test("when 20 connections pipeline without reading, then memory and started requests stay few", function* () {
  const { begun, dial, refused } = yield* makeWorld
  const before = process.memoryUsage().rss
  for (let i = 0; i < 20; i += 1) {
    const { socket } = yield* dial()
    socket.pause()
    for (let n = 0; n < 10; n += 1) socket.write(requests(200))
  }
  yield* until(() => refused.length === 20)
  assert.strictEqual(begun.length, 20)
  // Node makes an object for each request of one read. What it makes is garbage at once.
  assert.isBelow((process.memoryUsage().rss - before) / 2 ** 20, 150)
})

test("when bytes that are no request come behind one, then its answer is the last of the connection", function* () {
  const { begun, dial, refused } = yield* makeWorld
  const { heard, socket } = yield* dial()
  socket.write(`${requests(1)}\u0001garbage\r\n\r\n`)
  yield* until(() => begun.length === 1 && refused.length === 1)
  begun[0]?.response.end("answer")
  yield* until(() => socket.destroyed)
  assert.strictEqual(answers(heard()), 1)
  assert.include(heard(), "answer")
})

test("when a request's own body is malformed, then it is refused if its answer has not begun, else cut", function* () {
  const { begun, dial, refused } = yield* makeWorld
  const post = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
  const first = yield* dial()
  first.socket.write(`${post}nonsense\r\n`)
  yield* until(() => first.socket.destroyed)
  assert.match(first.heard(), /^HTTP\/1.1 400 [^]*"malformed HTTP request"/)
  const second = yield* dial()
  second.socket.write(post)
  yield* until(() => begun.length === 2)
  begun[1]?.response.write("begun")
  yield* until(() => second.heard().includes("begun"))
  second.socket.write("nonsense\r\n")
  yield* until(() => second.socket.destroyed)
  assert.strictEqual(answers(second.heard()), 1)
  assert.deepStrictEqual(refused, ["syntax", "syntax"])
})

test("when the server drains, or a request has an unclear end, then its answer is the last of the connection", function* () {
  const { begun, dial, drain } = yield* makeWorld
  const unclear = yield* dial()
  unclear.socket.write("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
  yield* until(() => begun.length === 1)
  begun[0]?.response.end()
  yield* until(() => unclear.socket.destroyed)
  drain()
  const drained = yield* dial()
  drained.socket.write(requests(1))
  yield* until(() => begun.length === 2)
  begun[1]?.response.end()
  yield* until(() => drained.socket.destroyed)
})
