/** Real sockets, small limits: 127.0.0.x are addresses of their own. */
import { once } from "node:events"
import { createServer } from "node:http"
import { connect, type Socket } from "node:net"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { type ConnectionLimits, limitConnections } from "../../../../src/http/server/connections.ts"
import { comesTrue } from "../../../support/wait.ts"

const makeWorld = (limits: Partial<ConnectionLimits> = {}) =>
  Effect.gen(function* () {
    const server = createServer((request, response) => {
      // A request for /wait is answered by nobody.
      if (request.url !== "/wait") response.end("ok")
    })
    const connections = limitConnections(server, {
      max: 100,
      perAddress: 5,
      isExempt: (address) => address === "127.0.0.9",
      headMs: 60_000,
      idleMs: 60_000,
      minWaitMs: 60_000,
      everyMs: 20,
      ...limits
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
    const open = (from: string) =>
      Effect.promise(async () => {
        const socket = connect({ host: "127.0.0.1", port, localAddress: from })
        sockets.add(socket)
        socket.on("error", () => undefined)
        await once(socket, "connect")
        await settled()
        return socket
      })
    /** Whether a request on it is answered. */
    const answers = (socket: Socket) =>
      Effect.promise(async () => {
        if (socket.destroyed) return false
        const ended = once(socket, "close").then(() => false)
        const answered = once(socket, "data").then(() => true)
        socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        return Promise.race([ended, answered])
      })
    const closed = (all: ReadonlyArray<Socket>) => all.filter((socket) => socket.destroyed).length
    return { answers, closed, connections, open }
  })

const settled = () => new Promise((resolve) => setTimeout(resolve, 10))
const many = (count: number) => Array.from({ length: count })

it.live(
  "when an address has all its connections, then a newcomer takes the place of a silent one of its own (H14)",
  () =>
    Effect.gen(function* () {
      const { answers, closed, connections, open } = yield* makeWorld()
      const silent = yield* Effect.forEach(many(5), () => open("127.0.0.2"))
      const other = yield* open("127.0.0.3")
      const newcomer = yield* open("127.0.0.2")
      assert.isTrue(yield* answers(newcomer))
      assert.strictEqual(closed(silent), 1)
      assert.isTrue(yield* answers(other))
      assert.strictEqual(connections.open, 6)
      assert.strictEqual(connections.cut, 1)
    })
)

it.live("when all connections of an address have a request under way, then the newcomer is cut (H14)", () =>
  Effect.gen(function* () {
    const { answers, closed, open } = yield* makeWorld()
    const busy = yield* Effect.forEach(many(5), () => open("127.0.0.2"))
    for (const socket of busy) socket.write("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
    yield* Effect.promise(settled)
    const newcomer = yield* open("127.0.0.2")
    assert.isFalse(yield* answers(newcomer))
    assert.strictEqual(closed(busy), 0)
    assert.isTrue(yield* Effect.flatMap(open("127.0.0.3"), answers))
  })
)

it.live("when the connections of many addresses have ended, then no address is remembered (H14)", () =>
  Effect.gen(function* () {
    const { connections, open } = yield* makeWorld()
    const sockets = yield* Effect.forEach(many(5), (_, n) => open(`127.0.0.${n + 2}`))
    assert.strictEqual(connections.addresses, 5)
    for (const socket of sockets) socket.destroy()
    assert.isTrue(yield* comesTrue(() => connections.open === 0))
    assert.strictEqual(connections.addresses, 0)
  })
)

it.live("when an address is exempt, then it may have as many as there are (H14)", () =>
  Effect.gen(function* () {
    const { closed, connections, open } = yield* makeWorld()
    const sockets = yield* Effect.forEach(many(20), () => open("127.0.0.9"))
    assert.strictEqual(closed(sockets), 0)
    assert.strictEqual(connections.open, 20)
  })
)

it.live("when silent connections of many addresses fill the server, then an honest one is served (H14)", () =>
  Effect.gen(function* () {
    const { answers, connections, open } = yield* makeWorld({ max: 20 })
    for (const n of [2, 3, 4, 5, 6]) yield* Effect.forEach(many(4), () => open(`127.0.0.${n}`))
    assert.strictEqual(connections.open, 20)
    assert.isTrue(yield* Effect.flatMap(open("127.0.0.7"), answers))
    assert.strictEqual(connections.open, 20)
  })
)

it.live(
  "when few connections are left, then a connection may wait less for its request, and else longer (H14)",
  () =>
    Effect.gen(function* () {
      const { closed, open } = yield* makeWorld({ perAddress: 10, headMs: 400, idleMs: 400, minWaitMs: 20 })
      const few = yield* Effect.forEach(many(5), () => open("127.0.0.2"))
      const crowd = yield* Effect.forEach(many(9), () => open("127.0.0.3"))
      // A fifth of 400 ms: nine of ten places are taken.
      assert.isTrue(yield* comesTrue(() => closed(crowd) >= 3))
      yield* Effect.sleep("500 millis")
      // Half full and less: only Node's own limits hold.
      assert.strictEqual(closed(few), 0)
      assert.isAtLeast(9 - closed(crowd), 5)
    })
)

it.live("when a head comes byte by byte on a full server, then its connection is cut (H14)", () =>
  Effect.gen(function* () {
    const { closed, open } = yield* makeWorld({ perAddress: 2, headMs: 1000, minWaitMs: 50 })
    const slow = yield* Effect.forEach(many(2), () => open("127.0.0.2"))
    const timer = setInterval(() => {
      for (const socket of slow) if (!socket.destroyed) socket.write("G")
    }, 10)
    yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(timer)))
    assert.isTrue(yield* comesTrue(() => closed(slow) >= 1))
  })
)
