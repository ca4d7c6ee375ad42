/** The bad network is itself held to what it says: every fault on a real socket, and nothing else. */
import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Socket } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { makeFaultProxy } from "../../support/FaultProxy.ts"
import { atMost } from "../../support/wait.ts"

interface Server {
  readonly target: { readonly host: string; readonly port: number }
  /** all that arrived, of all connections */
  readonly heard: () => string
  readonly bytesHeard: () => number
  readonly sockets: ReadonlyArray<Socket>
  /** connections that the other side ended properly, and those it reset */
  readonly ended: () => number
  readonly broken: () => number
}

/** Answers every read with the same bytes in capitals, unless it is told to read nothing. */
const makeServer = Effect.acquireRelease(
  Effect.promise(async () => {
    const sockets: Array<Socket> = []
    const heard: Array<Buffer> = []
    let bytesHeard = 0
    let ended = 0
    let broken = 0
    const listener = createServer((socket) => {
      sockets.push(socket)
      socket.on("data", (bytes) => {
        heard.push(bytes)
        bytesHeard += bytes.length
        socket.write(bytes.toString().toUpperCase())
      })
      socket.on("end", () => (ended += 1))
      socket.on("error", () => (broken += 1))
    }).listen(0, "127.0.0.1")
    await once(listener, "listening")
    const address: AddressInfo | string | null = listener.address()
    const port = typeof address === "object" && address !== null ? address.port : 0
    const server: Server & { readonly close: () => void } = {
      target: { host: "127.0.0.1", port },
      heard: () => Buffer.concat(heard).toString(),
      bytesHeard: () => bytesHeard,
      sockets,
      ended: () => ended,
      broken: () => broken,
      close: () => {
        listener.close()
        for (const socket of sockets) socket.destroy()
      }
    }
    return server
  }),
  (server) => Effect.sync(server.close)
)

interface Client {
  readonly socket: Socket
  readonly got: () => string
  readonly reads: () => number
  /** the code of the error it ended with; "end" when it was ended properly; undefined while it is open */
  readonly fate: () => string | undefined
}

const makeClient = (port: number) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const socket = connect(port, "127.0.0.1")
      const chunks: Array<string> = []
      let fate: string | undefined
      socket.on("data", (bytes) => chunks.push(bytes.toString()))
      socket.on("end", () => (fate ??= "end"))
      socket.on("error", (error) => (fate = "code" in error ? String(error.code) : error.message))
      await new Promise((settled) => socket.once("connect", settled).once("close", settled))
      const client: Client = {
        socket,
        got: () => chunks.join(""),
        reads: () => chunks.length,
        fate: () => fate
      }
      return client
    }),
    ({ socket }) => Effect.sync(() => socket.destroy())
  )

const until = (condition: () => boolean, ms = 5000) =>
  Effect.promise(async () => {
    const deadline = performance.now() + ms
    while (!condition() && performance.now() < deadline) await sleep(2)
    assert.isTrue(condition(), condition.toString())
  })

/** Long enough for bytes on loopback to arrive, if they are to arrive at all. */
const aMoment = Effect.sleep("60 millis")

const world = Effect.gen(function* () {
  const server = yield* makeServer
  const proxy = yield* makeFaultProxy(server.target)
  return { server, proxy, client: yield* makeClient(proxy.port) }
})

it.live("when no fault is set, then everything passes both ways, ends included", () =>
  Effect.gen(function* () {
    const { server, proxy, client } = yield* world
    const text = "abc".repeat(1_000_000)
    client.socket.end(text)
    yield* until(() => client.fate() === "end")
    assert.strictEqual(server.heard(), text)
    assert.strictEqual(client.got(), text.toUpperCase())
    yield* until(() => proxy.connections === 0)
  })
)

it.live("when the target is down, then the client is reset, and open connections end with the scope", () =>
  Effect.gen(function* () {
    const { server, client } = yield* Effect.scoped(world)
    yield* until(() => client.socket.destroyed && server.sockets.every(({ destroyed }) => destroyed))
    const down = yield* makeFaultProxy({ path: "/nowhere/.s.PGSQL.1" })
    const refused = yield* makeClient(down.port)
    yield* until(() => refused.fate() === "ECONNRESET")
  })
)

for (const direction of ["toServer", "toClient"] as const) {
  it.live(
    `when latency is set ${direction}, then everything arrives that much later, many messages at once`,
    () =>
      Effect.gen(function* () {
        const { server, proxy, client } = yield* world
        yield* proxy.latency(250, direction)
        const began = performance.now()
        for (const word of ["a", "b", "c", "d"]) {
          client.socket.write(word)
          yield* Effect.sleep("20 millis")
        }
        assert.strictEqual(server.heard(), direction === "toServer" ? "" : "abcd")
        assert.strictEqual(client.got(), "")
        yield* until(() => client.got() === "ABCD")
        const ms = performance.now() - began
        assert.isAtLeast(ms, 250)
        assert.isBelow(ms, atMost(900), "one latency for all, not one for each")
        client.socket.write("e")
        yield* aMoment
        assert.strictEqual(client.got(), "ABCD")
        yield* proxy.heal
        yield* until(() => client.got() === "ABCDE", 150)
      })
  )
}

it.live("when slices are set, then small pieces arrive, all of them and in order", () =>
  Effect.gen(function* () {
    const { server, proxy, client } = yield* world
    yield* proxy.slice(3, 5, "toClient")
    client.socket.write("abcdefghij")
    yield* until(() => client.got() === "ABCDEFGHIJ")
    assert.isAtLeast(client.reads(), 3)
    assert.strictEqual(server.heard(), "abcdefghij")
  })
)

for (const direction of ["toServer", "toClient"] as const) {
  it.live(
    `when a black hole is set ${direction}, then nothing arrives, connections stay open, and they are reset when it ends`,
    () =>
      Effect.gen(function* () {
        const { server, proxy, client } = yield* world
        client.socket.write("before.")
        yield* until(() => client.got() === "BEFORE.")
        const untouched = yield* makeClient(proxy.port)
        yield* proxy.blackHole(direction)
        const late = yield* makeClient(proxy.port)
        client.socket.write("lost")
        late.socket.write("lost")
        yield* aMoment
        assert.strictEqual(server.heard(), direction === "toServer" ? "before." : "before.lostlost")
        assert.strictEqual(client.got(), "BEFORE.")
        assert.strictEqual(proxy.connections, 3)
        assert.deepStrictEqual([client.fate(), late.fate()], [undefined, undefined])
        yield* proxy.heal
        yield* until(() => client.fate() === "ECONNRESET" && late.fate() === "ECONNRESET")
        untouched.socket.write("after")
        yield* until(() => untouched.got() === "AFTER")
      })
  )
}

it.live("when a black hole is set, then neither side learns that the other left", () =>
  Effect.gen(function* () {
    const { server, proxy, client } = yield* world
    yield* until(() => server.sockets.length === 1)
    yield* proxy.blackHole()
    client.socket.end()
    const reset = yield* makeClient(proxy.port)
    reset.socket.resetAndDestroy()
    yield* aMoment
    assert.deepStrictEqual([server.ended(), server.broken()], [0, 0])
    yield* proxy.heal
    yield* until(() => server.broken() === 2)
  })
)

it.live("when a stall ends, then what a black hole would have lost arrives late", () =>
  Effect.gen(function* () {
    const { server, proxy, client } = yield* world
    yield* proxy.stall("toServer")
    client.socket.write("late")
    yield* aMoment
    assert.strictEqual(server.heard(), "")
    yield* proxy.heal
    yield* until(() => client.got() === "LATE")
  })
)

it.live("when connections are refused, then only new ones are, and all are accepted again later", () =>
  Effect.gen(function* () {
    const { proxy, client } = yield* world
    yield* proxy.refuse
    const refused = yield* makeClient(proxy.port)
    yield* until(() => refused.fate() === "ECONNRESET")
    client.socket.write("here")
    yield* until(() => client.got() === "HERE")
    yield* proxy.heal
    const welcome = yield* makeClient(proxy.port)
    welcome.socket.write("again")
    yield* until(() => welcome.got() === "AGAIN")
  })
)

it.live("when a reset is set, then all open connections break for both sides at once", () =>
  Effect.gen(function* () {
    const { server, proxy, client } = yield* world
    const other = yield* makeClient(proxy.port)
    yield* until(() => server.sockets.length === 2)
    yield* proxy.reset
    yield* until(() => client.fate() === "ECONNRESET" && other.fate() === "ECONNRESET")
    yield* until(() => server.broken() === 2)
    assert.strictEqual(proxy.connections, 0)
  })
)

it.live(
  "when a cut has a pattern, then everything up to it passes, however it was split, and nothing after it",
  () =>
    Effect.gen(function* () {
      const { server, proxy, client } = yield* world
      yield* proxy.cutAfter("COMMIT", "toServer")
      client.socket.write("begin COM")
      yield* until(() => client.got() === "BEGIN COM")
      client.socket.write("MIT; begin")
      yield* until(() => client.fate() === "ECONNRESET")
      yield* until(() => server.heard() === "begin COMMIT")
      // The server has all that was sent, and then the end: it does what it was told.
      yield* until(() => server.ended() === 1)
      assert.deepStrictEqual([server.broken(), proxy.cuts], [0, 1])
      const next = yield* makeClient(proxy.port)
      next.socket.write("COMMIT")
      yield* until(() => next.got() === "COMMIT")
    })
)

it.live(
  "when a cut is in the answer, then the server does its work and the answer is lost, as often as asked",
  () =>
    Effect.gen(function* () {
      const { server, proxy } = yield* world
      yield* proxy.cutAfter(Buffer.from("DONE"), "toClient", { drop: true, times: 2 })
      for (const turn of [1, 2]) {
        const client = yield* makeClient(proxy.port)
        client.socket.write("is done;")
        yield* until(() => client.fate() === "ECONNRESET")
        assert.include(["", "IS "], client.got())
        assert.strictEqual(server.heard(), "is done;".repeat(turn))
        assert.strictEqual(proxy.cuts, turn)
      }
      const third = yield* makeClient(proxy.port)
      third.socket.write("is done;")
      yield* until(() => third.got() === "IS DONE;")
    })
)

it.live("when one reply is lost, then the request is carried out and only that reply never comes", () =>
  Effect.gen(function* () {
    const { server, proxy, client } = yield* world
    const bystander = yield* makeClient(proxy.port)
    yield* proxy.loseReply((bytes) => bytes.includes("reserve"))
    client.socket.write("peek;")
    yield* until(() => client.got() === "PEEK;")
    client.socket.write("reserve;")
    yield* until(() => client.fate() === "ECONNRESET")
    assert.strictEqual(client.got(), "PEEK;")
    assert.strictEqual(server.heard(), "peek;reserve;")
    bystander.socket.write("reserve;")
    yield* until(() => bystander.got() === "RESERVE;")
    assert.strictEqual(proxy.cuts, 1)
  })
)

it.live("when a receiver does not read, then the sender is stopped and memory stays small", () =>
  Effect.gen(function* () {
    const { server, proxy, client } = yield* world
    yield* until(() => server.sockets.length === 1)
    for (const socket of server.sockets) socket.pause()
    const piece = Buffer.alloc(1 << 20, "x")
    let sent = 0
    while (client.socket.write(piece) || client.socket.writableLength === 0) sent += 1
    const rest = 64
    for (let i = 0; i < rest; i++) client.socket.write(piece)
    yield* Effect.sleep("300 millis")
    assert.isAbove(client.socket.writableLength, (rest / 2) * piece.length)
    for (const socket of server.sockets) socket.resume()
    yield* until(() => server.bytesHeard() === (sent + 1 + rest) * piece.length, 20_000)
    assert.strictEqual(proxy.connections, 1)
  })
)
