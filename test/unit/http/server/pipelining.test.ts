/** Real sockets. The app of these tests begins a request as the gateway's does: when its turn has come. */
import { once } from "node:events"
import type { IncomingMessage, ServerResponse } from "node:http"
import { connect, type Socket } from "node:net"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import {
  maxDropped,
  maxWaiting,
  PipeliningServer,
  waitForTurn
} from "../../../../src/http/server/pipelining.ts"
import { comesTrue } from "../../../support/wait.ts"

interface Begun {
  readonly path: string
  readonly response: ServerResponse
}

const makeWorld = Effect.gen(function* () {
  let refused = 0
  let parsed = 0
  let over = 0
  const begun: Array<Begun> = []
  const run = Effect.runForkWith(yield* Effect.context<never>())
  const server = new PipeliningServer({}, () => void (refused += 1))
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    parsed += 1
    // Effect's server begins the app in a region that cannot be interrupted, and interrupts it when the response closes.
    const app = Effect.uninterruptible(
      Effect.map(waitForTurn(request), () => void begun.push({ path: request.url ?? "", response }))
    )
    const fiber = run(app)
    fiber.addObserver(() => void (over += 1))
    response.on("close", () => {
      run(Fiber.interrupt(fiber))
    })
  })
  const sockets = new Set<Socket>()
  yield* Effect.acquireRelease(
    Effect.promise(() => once(server.listen(0, "127.0.0.1"), "listening")),
    () =>
      Effect.promise(async () => {
        for (const socket of sockets) socket.destroy()
        server.closeAllConnections()
        await once(server.close(), "close")
      })
  )
  const address = server.address()
  const port = address === null || typeof address === "string" ? 0 : address.port
  const dial = Effect.promise(async () => {
    const socket = connect(port, "127.0.0.1")
    sockets.add(socket)
    socket.on("error", () => socket.destroy())
    const heard = { text: "" }
    socket.setEncoding("latin1").on("data", (text: string) => (heard.text += text))
    await once(socket, "connect")
    return { socket, heard }
  })
  /** Answers the request that is begun with its path, and every one that is begun after it. */
  const answerAll = Effect.promise(async () => {
    for (let at = 0; at < begun.length; at += 1) {
      begun[at]?.response.end(begun[at]?.path)
      await settled()
    }
  })
  const counts = () => ({ parsed, begun: begun.length, over, refused })
  return { answerAll, counts, dial }
})

const settled = () => new Promise((resolve) => setTimeout(resolve, 10))
const until = (holds: () => boolean) => Effect.map(comesTrue(holds), (came) => assert.isTrue(came))
const requests = (count: number, first = 0) =>
  Array.from({ length: count }, (_, i) => `GET /${first + i} HTTP/1.1\r\nHost: h\r\n\r\n`).join("")
const paths = (text: string) =>
  Array.from(text.matchAll(/\r\n\r\n(?:[0-9a-f]+\r\n)?\/(\d+)/g), ([, path]) => Number(path))
const upTo = (count: number) => Array.from({ length: count }, (_, i) => i)

it.live("when 17 are sent at once, then one is begun at a time and all are answered in order", () =>
  Effect.gen(function* () {
    const { answerAll, counts, dial } = yield* makeWorld
    const { heard, socket } = yield* dial
    socket.write(requests(1 + maxWaiting))
    yield* until(() => counts().parsed === 1 + maxWaiting)
    assert.strictEqual(counts().begun, 1)
    yield* answerAll
    yield* until(() => paths(heard.text).length === 1 + maxWaiting)
    assert.deepStrictEqual(paths(heard.text), upTo(1 + maxWaiting))
    assert.notInclude(heard.text, "Connection: close")
    assert.isFalse(socket.destroyed)
    assert.strictEqual(counts().refused, 0)
  })
)

it.live("when 17 are there and more come later, then those are read when fewer wait", () =>
  Effect.gen(function* () {
    const { answerAll, counts, dial } = yield* makeWorld
    const { heard, socket } = yield* dial
    socket.write(requests(1 + maxWaiting))
    yield* until(() => counts().parsed === 1 + maxWaiting)
    socket.write(requests(1, 1 + maxWaiting))
    yield* Effect.promise(settled)
    assert.strictEqual(counts().parsed, 1 + maxWaiting)
    yield* answerAll
    yield* until(() => paths(heard.text).length === 2 + maxWaiting)
    assert.deepStrictEqual(paths(heard.text), upTo(2 + maxWaiting))
    assert.strictEqual(counts().refused, 0)
  })
)

it.live("when 40 are sent at once, then 17 are answered and the connection ends", () =>
  Effect.gen(function* () {
    const { answerAll, counts, dial } = yield* makeWorld
    const { heard, socket } = yield* dial
    socket.write(requests(40))
    yield* until(() => counts().refused === 1)
    yield* answerAll
    yield* until(() => socket.destroyed)
    assert.deepStrictEqual(paths(heard.text), upTo(1 + maxWaiting))
    assert.strictEqual(heard.text.toLowerCase().split("connection: close").length - 1, 1)
    assert.deepStrictEqual(counts(), {
      parsed: 1 + maxWaiting,
      begun: 1 + maxWaiting,
      over: 1 + maxWaiting,
      refused: 1
    })
  })
)

it.live(
  "when more come than may wait and be dropped, then the connection is destroyed and only one was begun",
  () =>
    Effect.gen(function* () {
      const { counts, dial } = yield* makeWorld
      const { heard, socket } = yield* dial
      socket.write(requests(1 + maxWaiting + maxDropped + 1))
      yield* until(() => socket.destroyed)
      assert.strictEqual(heard.text, "")
      yield* until(() => counts().over === 1 + maxWaiting)
      assert.deepStrictEqual(counts(), {
        parsed: 1 + maxWaiting,
        begun: 1,
        over: 1 + maxWaiting,
        refused: 1
      })
    })
)

it.live("when 20 connections pipeline without reading, then memory and begun requests stay few", () =>
  Effect.gen(function* () {
    const { counts, dial } = yield* makeWorld
    const before = process.memoryUsage().rss
    for (let i = 0; i < 20; i += 1) {
      const { socket } = yield* dial
      socket.pause()
      for (let n = 0; n < 10; n += 1) socket.write(requests(200))
    }
    yield* until(() => counts().refused === 20)
    assert.strictEqual(counts().begun, 20)
    assert.strictEqual(counts().parsed, 20 * (1 + maxWaiting))
    assert.isBelow((process.memoryUsage().rss - before) / 2 ** 20, 50)
  })
)

it.live("when a client leaves, then the requests that wait are closed and never begun", () =>
  Effect.gen(function* () {
    const { counts, dial } = yield* makeWorld
    const { socket } = yield* dial
    socket.write(requests(5))
    yield* until(() => counts().parsed === 5)
    socket.destroy()
    yield* until(() => counts().over === 5)
    assert.strictEqual(counts().begun, 1)
  })
)
