/** A body in whatever pieces it comes: what is kept of it, what is refused, and when its connection is not read. */
import { createServer, type IncomingMessage, type Server } from "node:http"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { BadRequest, PayloadTooLarge, Unavailable } from "../../../../src/domain/Errors.ts"
import { ReceivedBody } from "../../../../src/http/server/ReceivedBody.ts"
import type { EarlyShare } from "../../../../src/memory/MemoryLedger.ts"
import { dialled } from "../../../support/nodeServer.ts"
import { testWith } from "../../../support/testWith.ts"
import { comesTrue } from "../../../support/wait.ts"

/** A request with `headers` on a connection of its own, and the client's end of that. */
const arrived = Effect.fnUntraced(function* (
  headers: ReadonlyArray<string>,
  early: EarlyShare = generous().share
) {
  const [server, coming] = [createServer(), Promise.withResolvers<readonly [IncomingMessage, ReceivedBody]>()]
  let finish: (() => void) | undefined
  server.on("request", (incoming, response) => {
    finish = () => void response.end("no")
    coming.resolve([incoming, new ReceivedBody(incoming, response, early)])
  })
  const { socket: client } = yield* yield* dial(server)
  client.write(["POST / HTTP/1.1", "Host: h", ...headers, "", ""].join("\r\n"))
  const [incoming, received] = yield* Effect.promise(() => coming.promise)
  /** Until so many bytes have come: those of the head too. */
  const came = (bytes: number) => until(() => incoming.socket.bytesRead > bytes)
  return { client, incoming, received, came, answer: () => finish?.() }
})
const dial = (server: Server) => Effect.map(dialled(server), (connect) => connect())
const until = (holds: () => boolean) => Effect.map(comesTrue(holds), (came) => assert.isTrue(came))

/** Grants everything and remembers what was asked for. */
const generous = () => {
  const asked: Array<number> = []
  const share: EarlyShare = {
    grow: (bytes) => {
      asked.push(bytes)
      return undefined
    },
    close: () => undefined
  }
  return { asked, share }
}

const read = (received: ReceivedBody, share: EarlyShare, limitBytes = 1_000_000) =>
  received.read({ limitBytes, share, ms: 60_000, onCut: () => () => {} })

const chunked = ["Transfer-Encoding: chunked"]
const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`
const crowd = () => new Unavailable({ gate: "Limiter", retryAfterS: 1, crowded: true, cause: "none left" })

const test = testWith(it.live)

test("when a body comes in many pieces, then its bytes are the same, and memory is taken in steps", function* () {
  const { client, received } = yield* arrived(chunked)
  const text = Array.from({ length: 3000 }, (_, i) => `${i},`.padEnd(100, "x")).join("")
  const { asked, share } = generous()
  for (let at = 0; at < text.length; at += 100) client.write(chunk(text.slice(at, at + 100)))
  client.write("0\r\n\r\n")
  const bytes = yield* read(received, share)
  assert.strictEqual(bytes.toString(), text)
  assert.isBelow(asked.length, 20)
  assert.isAtLeast(asked.at(-1) ?? 0, text.length)
  assert.isBelow(asked.at(-1) ?? 0, 2 * text.length + 200)
})

test("when the pieces of a body are put together, then the memory of each piece is freed", function* () {
  const text = "x".repeat(500_000)
  const { client, incoming, received } = yield* arrived([`Content-Length: ${text.length}`])
  const pieces: Array<Buffer> = []
  incoming.prependListener("data", (piece: Buffer) => void pieces.push(piece))
  client.write(text)
  const bytes = yield* read(received, generous().share)
  assert.isAbove(pieces.length, 2)
  assert.isTrue(pieces.every(({ buffer }) => buffer instanceof ArrayBuffer && buffer.detached))
  assert.isTrue(bytes.equals(Buffer.from(text)))
})

test("when a body comes byte by byte, then it is refused long before it is whole", function* () {
  const { client, received } = yield* arrived(chunked)
  client.write(chunk("x").repeat(1024 + 100))
  assert.deepInclude(yield* Effect.flip(read(received, generous().share)), {
    detail: "body: expected fewer chunks, of more bytes"
  })
})

test("when a body is small, then it may come byte by byte", function* () {
  const { client, received } = yield* arrived(chunked)
  client.write(`${chunk("x").repeat(1000)}0\r\n\r\n`)
  assert.strictEqual((yield* read(received, generous().share)).length, 1000)
})

test("when nobody wants a body yet, then no more is taken than its beginning, and the rest when it is wanted", function* () {
  const size = 900_000
  const { client, incoming, received } = yield* arrived([`Content-Length: ${size}`])
  client.write(Buffer.alloc(size, "y"))
  yield* until(() => incoming.socket.isPaused())
  assert.isBelow(incoming.socket.bytesRead, 200_000)
  assert.strictEqual(incoming.readableLength, 0)
  assert.strictEqual((yield* read(received, generous().share)).length, size)
})

test("when nobody wants a body in tiny chunks, then they are not kept", function* () {
  const { client, incoming, received } = yield* arrived(chunked)
  client.write(chunk("x").repeat(50_000))
  yield* until(() => incoming.socket.isPaused())
  assert.strictEqual(incoming.readableLength, 0)
  assert.isBelow(incoming.socket.bytesRead, 200_000)
  assert.instanceOf(yield* Effect.flip(read(received, generous().share)), BadRequest)
})

for (const early of [true, false]) {
  test(`when a body is too large and comes ${early ? "before" : "after"} it is wanted, then it is refused`, function* () {
    const { came, client, received } = yield* arrived(chunked)
    const send = () => client.write(`${chunk("x".repeat(10_000))}0\r\n\r\n`)
    if (early) {
      send()
      yield* came(10_000)
    } else setTimeout(send, 20)
    const { asked, share } = generous()
    assert.instanceOf(yield* Effect.flip(read(received, share, 9999)), PayloadTooLarge)
    assert.deepStrictEqual(asked, [0].slice(early ? 1 : 0))
  })
}

test("when there is no memory for a body, then it is refused as the share says", function* () {
  const [early, crowded] = [generous(), crowd()]
  const { client, received } = yield* arrived(chunked, early.share)
  client.write(chunk("x".repeat(10)))
  yield* until(() => early.asked.length > 0)
  setTimeout(() => client.write(chunk("x".repeat(1000))), 20)
  const share: EarlyShare = { grow: (bytes) => (bytes > 100 ? crowded : undefined), close: () => undefined }
  assert.strictEqual(yield* Effect.flip(read(received, share)), crowded)
})

test("when there is no memory for what comes before its sender is known, then it is refused when it is asked for", function* () {
  const [crowded, { asked, share }] = [crowd(), generous()]
  const { client, received } = yield* arrived(chunked, {
    ...share,
    grow: (bytes) => share.grow(bytes) ?? crowded
  })
  client.write(chunk("x".repeat(10)))
  yield* until(() => asked.length > 0)
  assert.strictEqual(yield* Effect.flip(read(received, generous().share)), crowded)
})

test("when a request is answered without its body, then the rest is read and thrown away", function* () {
  const { answer, came, client, incoming } = yield* arrived(chunked)
  client.write(chunk("x".repeat(40_000)))
  yield* came(30_000)
  answer()
  client.resume()
  incoming.resume()
  client.write(chunk("x".repeat(400_000)))
  yield* came(400_000)
})

test("when the client leaves, then whoever waits is told", function* () {
  const { client, received } = yield* arrived(["Content-Length: 100"])
  client.write("half")
  setTimeout(() => client.destroy(), 20)
  assert.deepInclude(yield* Effect.flip(read(received, generous().share)), {
    detail: "body: not received whole"
  })
})

test("when bodies come in one read with others, then Node gives each piece a memory of its own", function* () {
  const pieces: Array<readonly [bytes: number, memory: number]> = []
  const requestOf = (headers: string, body: string) =>
    `POST / HTTP/1.1\r\nHost: h\r\n${headers}\r\n\r\n${body}`
  const length = (bytes: number) => requestOf(`Content-Length: ${bytes}`, "a".repeat(bytes))
  const server = createServer((incoming, response) => {
    incoming.on("data", ({ buffer, length: bytes }: Buffer) => pieces.push([bytes, buffer.byteLength]))
    incoming.on("end", () => response.end())
  })
  const { socket } = yield* yield* dial(server)
  const last = requestOf("Connection: close\r\nContent-Length: 1", "d")
  const inChunks = requestOf("Transfer-Encoding: chunked", `${chunk("b".repeat(9000))}${chunk("c")}0\r\n\r\n`)
  socket.resume().write(length(9000) + length(20_000) + inChunks + last)
  yield* until(() => socket.destroyed)
  // `ReceivedBody` and `readRequest` free the memory of a piece: it may hold nothing of another request.
  assert.strictEqual(
    pieces.reduce((sum, [bytes]) => sum + bytes, 0),
    9000 + 20_000 + 9001 + 1
  )
  for (const [bytes, memory] of pieces) assert.strictEqual(memory, bytes)
})
