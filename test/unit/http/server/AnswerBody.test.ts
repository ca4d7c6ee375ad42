import { createServer, request, type ServerResponse } from "node:http"
import { connect } from "node:net"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, type Scope } from "effect"
import * as fc from "fast-check"
import { AnswerBody, pieceBytes } from "../../../../src/http/server/AnswerBody.ts"
import { uncounted } from "../../../../src/backend/AnswerMemory.ts"
import { comesTrue } from "../../../support/wait.ts"

/** A server that answers with what `serve` writes; gives its port. */
const served = (
  serve: (response: ServerResponse) => Effect.Effect<unknown>
): Effect.Effect<number, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<{ readonly port: number; readonly close: () => void }>((resume) => {
      const server = createServer((_incoming, response) => void Effect.runFork(serve(response)))
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        const close = () => {
          server.close()
          server.closeAllConnections()
        }
        resume(Effect.succeed({ port, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  ).pipe(Effect.map(({ port }) => port))

/** What Node's client takes the answer to be; `undefined` when it broke off. */
const answerOf = (port: number) =>
  Effect.callback<string | undefined>((resume) => {
    const asked = request({ host: "127.0.0.1", port, agent: false }, (response) => {
      const read: Array<Buffer> = []
      response.on("data", (chunk: Buffer) => read.push(chunk))
      response.on("error", () => resume(Effect.undefined))
      response.on("end", () => resume(Effect.succeed(Buffer.concat(read).toString("utf8"))))
    })
    asked.on("error", () => resume(Effect.undefined))
    asked.end()
  })

const heads = { "content-type": "text/plain" }

const wholly = (pieces: ReadonlyArray<string>) => (response: ServerResponse) =>
  Effect.gen(function* () {
    const body = new AnswerBody(response, heads, uncounted)
    for (const piece of pieces) yield* body.write(piece)
    body.end()
  })

it.live("when pieces of any size are written, then the client reads the same bytes", () =>
  Effect.gen(function* () {
    let pieces: ReadonlyArray<string> = []
    const port = yield* served((response) => wholly(pieces)(response))
    const text = fc.oneof(
      fc.string({ unit: "grapheme" }),
      fc.string({ unit: "binary" }),
      fc.constantFrom("", "0\r\n\r\n", "é", "漢字", "🦙", "\r\n", "a".repeat(70_000), "漢".repeat(30_000))
    )
    const run = Effect.runPromiseWith(yield* Effect.context<never>())
    yield* Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.array(text, { maxLength: 8 }), async (written) => {
          pieces = written
          assert.strictEqual(
            await run(answerOf(port)),
            Buffer.from(written.join(""), "utf8").toString("utf8")
          )
        })
      )
    )
  })
)

it.live("when parts of any size are written as bytes, then the client reads the same bytes", () =>
  Effect.gen(function* () {
    let parts: ReadonlyArray<Buffer> = []
    let largest = 0
    const port = yield* served((response) =>
      Effect.gen(function* () {
        for (const target of [response, response.socket]) {
          const write = target?.write.bind(target)
          if (target === null || write === undefined) return yield* Effect.die("no socket")
          target.write = (chunk: string | Uint8Array) => {
            largest = Math.max(largest, chunk.length)
            return write(chunk)
          }
        }
        const body = new AnswerBody(response, heads, uncounted)
        yield* body.writeBytes(...parts)
        body.end()
      })
    )
    const length = fc.oneof(
      fc.nat(40),
      fc.constantFrom(7000, 16_383, 16_384, 20_000, pieceBytes - 1, pieceBytes, pieceBytes + 1, 200_000)
    )
    const part = fc.tuple(length, fc.constantFrom("a", "b", "c")).map(([n, sign]) => sign.repeat(n))
    const run = Effect.runPromiseWith(yield* Effect.context<never>())
    yield* Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.array(part, { minLength: 1, maxLength: 20 }), async (texts) => {
          fc.pre(texts.join("") !== "")
          parts = texts.map((text) => Buffer.from(text))
          assert.strictEqual(await run(answerOf(port)), texts.join(""))
          assert.isAtMost(largest, pieceBytes)
        })
      )
    )
  })
)

it.live("when a piece is written, then it leaves in one write with its length before it", () =>
  Effect.gen(function* () {
    const writes: Array<string> = []
    const port = yield* served((response) => {
      const { socket } = response
      const write = socket?.write.bind(socket)
      if (socket === null || write === undefined) return Effect.die("no socket")
      socket.write = (chunk: string | Uint8Array) => {
        writes.push(String(chunk))
        return write(chunk)
      }
      return Effect.gen(function* () {
        const body = new AnswerBody(response, heads, uncounted)
        for (const piece of ["é", "", "xyz"]) yield* body.write(piece)
        body.end("end")
      })
    })
    assert.strictEqual(yield* answerOf(port), "éxyzend")
    assert.match(writes[0] ?? "", /^HTTP\/1\.1 200 OK\r\n[^]*Transfer-Encoding: chunked\r\n\r\n2\r\né\r\n$/)
    assert.deepStrictEqual(writes.slice(1), ["3\r\nxyz\r\n", "3\r\nend\r\n0\r\n\r\n"])
  })
)

it.live(
  "when the client speaks HTTP/1.0, then nothing is chunked, and the end of the connection is the end",
  () =>
    Effect.gen(function* () {
      const port = yield* served(wholly(["one ", "", "two"]))
      const text = yield* Effect.callback<string>((resume) => {
        let read = ""
        const socket = connect(port, "127.0.0.1", () => socket.write("GET / HTTP/1.0\r\n\r\n"))
        socket.setEncoding("utf8").on("data", (chunk: string) => (read += chunk))
        socket.on("end", () => resume(Effect.succeed(read)))
      })
      const [head = "", body] = text.split("\r\n\r\n")
      assert.notMatch(head, /transfer-encoding/i)
      assert.strictEqual(body, "one two")
    })
)

it.live("when an answer was not ended, then it does not look complete to the client", () =>
  Effect.gen(function* () {
    const port = yield* served((response) =>
      Effect.gen(function* () {
        yield* new AnswerBody(response, heads, uncounted).write("half an ans")
        response.destroy()
      })
    )
    assert.isUndefined(yield* answerOf(port))
  })
)

it.live("when a client does not read, then it is waited for, and gets the rest when it reads again", () =>
  Effect.gen(function* () {
    const piece = "漢".repeat(100_000)
    const pieces = Array.from({ length: 100 }, () => piece)
    let written = 0
    const port = yield* served((response) =>
      Effect.gen(function* () {
        const body = new AnswerBody(response, heads, uncounted)
        for (const piece of pieces) {
          yield* body.write(piece)
          written += 1
        }
        body.end()
      })
    )
    const [socket, bytes] = yield* Effect.callback<readonly [ReturnType<typeof connect>, { read: number }]>(
      (resume) => {
        const bytes = { read: 0 }
        const socket = connect(port, "127.0.0.1", () => {
          socket.write("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
          resume(Effect.succeed([socket, bytes]))
        })
        socket.pause()
      }
    )
    // However slow the machine, it comes to a stop, and before the end.
    let held = 0
    do {
      held = written
      yield* Effect.sleep("100 millis")
    } while (written > held)
    assert.isBelow(held, pieces.length)
    yield* Effect.callback<void>((resume) => {
      socket.on("data", (chunk: Buffer) => (bytes.read += chunk.length))
      socket.on("end", () => resume(Effect.void))
      socket.resume()
    })
    assert.strictEqual(written, pieces.length)
    assert.isAbove(bytes.read, Buffer.byteLength(piece) * pieces.length)
  })
)

it.live("when a writer stops waiting for room, then it leaves no listener behind", () =>
  Effect.gen(function* () {
    const listeners = yield* Deferred.make<readonly [waiting: number, after: number]>()
    const port = yield* served((response) =>
      Effect.gen(function* () {
        const body = new AnswerBody(response, heads, uncounted)
        const writing = yield* Effect.forkChild(Effect.forever(body.write("x".repeat(1_000_000))))
        const before = response.socket?.listenerCount("drain") ?? 0
        const added = () => (response.socket?.listenerCount("drain") ?? 0) - before
        yield* comesTrue(() => added() > 0)
        const waiting = added()
        yield* Fiber.interrupt(writing)
        yield* Deferred.succeed(listeners, [waiting, added()])
      })
    )
    const socket = connect(port, "127.0.0.1", () => socket.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n"))
    socket.pause()
    assert.deepStrictEqual(yield* Deferred.await(listeners), [1, 0])
    socket.destroy()
  })
)

const isFree = ({ buffer }: Buffer): boolean => buffer instanceof ArrayBuffer && buffer.detached

/** Calls `see` with each buffer that is written to `response` from now on. */
const watchWrites = (response: ServerResponse, see: (bytes: Buffer) => void): void => {
  for (const target of [response, response.socket]) {
    if (target === null) continue
    const { write } = target
    const seen = (chunk: string | Buffer, ...rest: ReadonlyArray<unknown>): unknown => {
      if (typeof chunk !== "string") see(chunk)
      return Reflect.apply(write, target, [chunk, ...rest])
    }
    Object.defineProperty(target, "write", { value: seen })
  }
}

it.live(
  "when many small parts are written, then few memories serve all of them, and are free at the end",
  () =>
    Effect.gen(function* () {
      const small = Array.from({ length: 2000 }, (_, n) => Buffer.from(String(n).padEnd(6000)))
      const large = Buffer.alloc(500_000, "l")
      const parts = [...small.slice(0, 1000), large, ...small.slice(1000)]
      const memories = new Set<Buffer["buffer"]>()
      const sent: Array<boolean> = []
      const port = yield* served((response) =>
        Effect.gen(function* () {
          watchWrites(response, ({ buffer }) => void memories.add(buffer))
          const body = new AnswerBody(response, heads, uncounted)
          yield* body.writeBytes(...parts)
          sent.push(yield* body.endAndWait())
        })
      )
      assert.strictEqual(yield* answerOf(port), Buffer.concat(parts).toString())
      yield* comesTrue(() => sent.length > 0)
      assert.deepStrictEqual(sent, [true])
      // A piece that had to wait for the client while the next one was made has another memory.
      assert.isAtMost(memories.size, 1 + 20)
      memories.delete(large.buffer)
      assert.isTrue([...memories].every((memory) => memory instanceof ArrayBuffer && memory.detached))
      assert.isFalse(isFree(large), "it belongs to the caller")
    })
)

it.live(
  "when the client leaves before it has all, then no memory is freed while the connection may read it",
  () =>
    Effect.gen(function* () {
      const parts = Array.from({ length: 5000 }, (_, n) => Buffer.from(String(n).padEnd(6000)))
      const seen: Array<readonly [unsent: boolean, freed: boolean]> = []
      let ended: boolean | undefined
      const port = yield* served((response) =>
        Effect.gen(function* () {
          let last: Buffer = Buffer.alloc(0)
          const { socket } = response
          const look = () => void seen.push([(socket?.writableLength ?? 0) > 0, isFree(last)])
          watchWrites(response, (bytes) => void (last = bytes))
          const body = new AnswerBody(response, heads, uncounted)
          const writing = yield* Effect.forkChild(body.writeBytes(...parts), { startImmediately: true })
          yield* comesTrue(() => response.writableLength > 0 && writing.pollUnsafe() === undefined)
          yield* Fiber.interrupt(writing)
          look()
          socket?.once("close", look)
          ended = yield* body.endAndWait()
          look()
        })
      )
      const socket = connect(port, "127.0.0.1", () => socket.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n"))
      socket.pause()
      yield* comesTrue(() => seen.length > 0)
      socket.destroy()
      yield* comesTrue(() => ended !== undefined)
      assert.deepStrictEqual(seen[0], [true, false])
      assert.isFalse(seen.some(([unsent, freed]) => unsent && freed))
      assert.strictEqual(seen.at(-1)?.[1], ended)
    })
)
