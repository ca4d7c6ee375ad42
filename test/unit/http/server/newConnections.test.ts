/** Real sockets; 127.0.0.x are addresses of their own. */
import { once } from "node:events"
import { createServer } from "node:http"
import { connect } from "node:net"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { delayNewConnections } from "../../../../src/http/server/newConnections.ts"
import { atMost } from "../../../support/wait.ts"

const makeWorld = Effect.gen(function* () {
  const arrived: Array<string> = []
  const server = createServer((request, response) => {
    arrived.push(request.socket.remoteAddress ?? "")
    response.end("ok")
  })
  const connections = delayNewConnections(server, {
    isExempt: (address) => address === "127.0.0.9",
    perSecond: 5,
    burst: 3,
    maxDelayMs: 400
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => once(server.listen(0, "127.0.0.1"), "listening")),
    () =>
      Effect.promise(async () => {
        server.closeAllConnections()
        await once(server.close(), "close")
      })
  )
  const address = server.address()
  const port = address === null || typeof address === "string" ? 0 : address.port
  /** Sends a request on a connection of its own; returns the connection and when it is answered. */
  const send = (from: string) =>
    Effect.promise(async () => {
      const socket = connect({ host: "127.0.0.1", port, localAddress: from })
      socket.on("error", () => undefined)
      await once(socket, "connect")
      const sentAt = performance.now()
      socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
      return { socket, answeredMs: once(socket, "data").then(() => performance.now() - sentAt) }
    })
  return { arrived, connections, send }
})

it.live(
  "when an address opens too many connections at once, then the others are read later, and all are answered",
  () =>
    Effect.gen(function* () {
      const { connections, send } = yield* makeWorld
      const sent = yield* Effect.forEach(Array.from({ length: 8 }), () => send("127.0.0.2"))
      const other = yield* send("127.0.0.3")
      const waits = yield* Effect.promise(() => Promise.all(sent.map(({ answeredMs }) => answeredMs)))
      for (const ms of waits.slice(0, 3)) assert.isBelow(ms, atMost(150))
      for (const ms of waits.slice(5)) assert.isAbove(ms, 200)
      for (const ms of waits) assert.isBelow(ms, atMost(2000))
      assert.isBelow(yield* Effect.promise(() => other.answeredMs), atMost(150))
      assert.strictEqual(connections.delayed, 5)
    })
)

it.live("when a client leaves before its connection is read, then its request never arrives", () =>
  Effect.gen(function* () {
    const { arrived, send } = yield* makeWorld
    const sent = yield* Effect.forEach(Array.from({ length: 10 }), () => send("127.0.0.2"))
    for (const { socket } of sent) socket.resetAndDestroy()
    yield* Effect.sleep("800 millis")
    assert.isAtMost(arrived.length, 3)
  })
)

it.live("when a trusted proxy opens many connections, then none is delayed", () =>
  Effect.gen(function* () {
    const { connections, send } = yield* makeWorld
    const sent = yield* Effect.forEach(Array.from({ length: 10 }), () => send("127.0.0.9"))
    yield* Effect.promise(() => Promise.all(sent.map(({ answeredMs }) => answeredMs)))
    assert.strictEqual(connections.delayed, 0)
  })
)
