/** Real sockets, small limits. */
import { once } from "node:events"
import { createServer } from "node:http"
import { assert, it, vi } from "@effect/vitest"
import { Effect } from "effect"
import { type ConnectionLimits, limitConnections } from "../../../../src/http/server/connections.ts"
import { type Client, dialled } from "../../../support/nodeServer.ts"
import { comesTrue } from "../../../support/wait.ts"
import { testWith } from "../../../support/testWith.ts"

const proxy = "127.0.0.9"
const plenty = { perSecond: 10_000, burst: 10_000 }

const makeWorld = Effect.fnUntraced(function* (limits: Partial<ConnectionLimits> = {}) {
  const begun: Array<string> = []
  const server = createServer((request, response) => {
    begun.push(request.socket.remoteAddress ?? "")
    // A request for /wait is answered by nobody.
    if (request.url === "/large") response.end(Buffer.alloc(50_000_000))
    else if (request.url !== "/wait") response.end("ok")
  })
  const connections = limitConnections(server, {
    max: 100,
    perAddress: 5,
    newPerAddress: plenty,
    isExempt: (address) => address === proxy,
    stallMs: 60_000,
    ...limits
  })
  const dial = yield* dialled(server)
  /** A connection that the server knows. */
  const open = (from: string) => {
    const before = connections.open + connections.cut
    return Effect.tap(dial(from), () => comesTrue(() => connections.open + connections.cut > before))
  }
  const ask = ({ socket }: Client, path = "/") => void socket.write(`GET ${path} HTTP/1.1\r\nHost: h\r\n\r\n`)
  /** Whether a request on it is answered. */
  const answers = (client: Client) =>
    Effect.promise(async () => {
      if (client.socket.destroyed) return false
      const ended = once(client.socket, "close").then(() => false)
      const answered = once(client.socket, "data").then(() => true)
      ask(client)
      return Promise.race([ended, answered])
    })
  return { answers, ask, begun, connections, dial, open }
})

const many = (count: number) => Array.from({ length: count })
const closed = (clients: ReadonlyArray<Client>) => clients.filter(({ socket }) => socket.destroyed).length

const test = testWith(it.live)

test("when an address has all its connections, then a newcomer takes the place of the one that has waited longest (H14)", function* () {
  const { answers, connections, open } = yield* makeWorld()
  const silent = yield* Effect.forEach(many(5), () => open("127.0.0.2"))
  const other = yield* open("127.0.0.3")
  // The first one was used since, so the second one has waited longest.
  assert.isTrue(yield* answers(silent[0] ?? other))
  const newcomer = yield* open("127.0.0.2")
  assert.isTrue(yield* answers(newcomer))
  assert.isTrue(yield* comesTrue(() => closed(silent) === 1))
  assert.isTrue(silent[1]?.socket.destroyed)
  assert.isTrue(yield* answers(other))
  assert.strictEqual(connections.open, 6)
  assert.strictEqual(connections.cut, 1)
})

test("when all connections of an address have a request under way, then the newcomer is cut (H14)", function* () {
  const { answers, ask, begun, open } = yield* makeWorld()
  const busy = yield* Effect.forEach(many(5), () => open("127.0.0.2"))
  for (const client of busy) ask(client, "/wait")
  assert.isTrue(yield* comesTrue(() => begun.length === 5))
  const newcomer = yield* open("127.0.0.2")
  assert.isFalse(yield* answers(newcomer))
  assert.strictEqual(closed(busy), 0)
  assert.isTrue(yield* Effect.flatMap(open("127.0.0.3"), answers))
})

test("when the connections of many addresses have ended, then no address is remembered (H14)", function* () {
  const { ask, begun, connections, open } = yield* makeWorld({ max: 5 })
  const clients = yield* Effect.forEach(many(5), (_, n) => open(`127.0.0.${n + 2}`))
  assert.strictEqual(connections.addresses, 5)
  for (const client of clients) ask(client, "/wait")
  assert.isTrue(yield* comesTrue(() => begun.length === 5))
  // There is no room for it, nor for its address.
  yield* open("127.0.0.77")
  assert.isTrue(yield* comesTrue(() => connections.addresses === 5))
  for (const { socket } of clients) socket.destroy()
  assert.isTrue(yield* comesTrue(() => connections.open === 0))
  assert.isTrue(yield* comesTrue(() => connections.addresses === 0))
})

test("when an address is a trusted proxy, then it may have as many as there are, and opens them at once (H14)", function* () {
  const { connections, open } = yield* makeWorld({ newPerAddress: { perSecond: 1, burst: 1 } })
  const clients = yield* Effect.forEach(many(20), () => open(proxy))
  assert.strictEqual(closed(clients), 0)
  assert.strictEqual(connections.open, 20)
  assert.strictEqual(connections.delayed, 0)
})

test("when silent connections of many addresses fill the server, then an honest one is served (H14)", function* () {
  const { answers, connections, open } = yield* makeWorld({ max: 20 })
  for (const n of [2, 3, 4, 5, 6]) yield* Effect.forEach(many(4), () => open(`127.0.0.${n}`))
  assert.strictEqual(connections.open, 20)
  assert.isTrue(yield* Effect.flatMap(open("127.0.0.7"), answers))
  assert.strictEqual(connections.open, 20)
})

test("when a head comes byte by byte, then its connection is one that waits (H14)", function* () {
  const { answers, open } = yield* makeWorld({ perAddress: 1 })
  const slow = yield* open("127.0.0.2")
  slow.socket.write("GET / HTTP/1.1\r\nX-A: ")
  assert.isTrue(yield* Effect.flatMap(open("127.0.0.2"), answers))
  assert.isTrue(yield* comesTrue(() => slow.socket.destroyed))
})

/** A machine that is busy for so long is not seen. */
const stallMs = 1500

test("when a client takes nothing of its answer, then it is cut, and one that reads slowly is not", function* () {
  const { ask, open } = yield* makeWorld({ stallMs })
  const [stalled, slow] = [yield* open("127.0.0.2"), yield* open("127.0.0.2")]
  for (const client of [stalled, slow]) {
    client.socket.pause()
    ask(client, "/large")
  }
  const timer = setInterval(() => slow.socket.read(), 50)
  yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(timer)))
  let over = false
  stalled.socket.on("close", () => (over = true))
  yield* Effect.sleep(stallMs + 1600)
  stalled.socket.resume()
  assert.isTrue(yield* comesTrue(() => over))
  assert.isBelow(stalled.socket.bytesRead, 50_000_000)
  assert.isFalse(slow.socket.destroyed)
})

const paced = { perAddress: 100, newPerAddress: { perSecond: 5, burst: 3 } }

test("when an address opens too many connections at once, then the others are read later, and all are answered", function* () {
  const { ask, connections, dial } = yield* makeWorld(paced)
  // However long this machine takes to connect, it is at once for the server.
  const clock = vi.spyOn(performance, "now").mockReturnValue(performance.now())
  yield* Effect.addFinalizer(() => Effect.sync(() => clock.mockRestore()))
  const answered = Effect.fnUntraced(function* (from: string) {
    const since = process.hrtime.bigint()
    const client = yield* dial(from)
    ask(client)
    // The answer may come before anybody waits for it.
    return {
      waited: once(client.socket, "data").then(() => Number(process.hrtime.bigint() - since) / 1e6)
    }
  })
  const sent = yield* Effect.forEach(many(8), () => answered("127.0.0.2"))
  const other = yield* answered("127.0.0.3")
  const waits = yield* Effect.promise(() => Promise.all(sent.map(({ waited }) => waited)))
  for (const [i, ms] of waits.slice(3).entries()) assert.isAbove(ms, 200 * (i + 1) - 20)
  yield* Effect.promise(() => other.waited)
  assert.strictEqual(connections.delayed, 5)
})

test("when a client leaves before its connection is read, then its request never arrives", function* () {
  const { ask, begun, connections, dial } = yield* makeWorld(paced)
  const clients = yield* Effect.forEach(many(10), () => dial("127.0.0.2"))
  for (const client of clients) ask(client)
  assert.isTrue(yield* comesTrue(() => begun.length >= 3))
  // A busy machine may have read more by now.
  const before = begun.length
  for (const { socket } of clients) socket.resetAndDestroy()
  // Each is read when its time has come.
  assert.isTrue(yield* comesTrue(() => connections.open === 0))
  assert.strictEqual(begun.length, before)
})
