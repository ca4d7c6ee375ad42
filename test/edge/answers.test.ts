/** Answers on their way to clients that read slowly or not at all, and answers that cannot be written. */
import { connect, type Socket } from "node:net"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { fake } from "../support/FakeBackend.ts"
import {
  call,
  eventually,
  Fake,
  figureOf,
  Gateway,
  hello,
  layerGateway,
  newKey,
  rowOf
} from "../support/Gateway.ts"
import { rawPost, responsesIn, talk } from "../support/RawClient.ts"
import { comesTrue } from "../support/wait.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

/** More than a connection's buffers in the kernel take, and no more than so many inputs may give. */
const inputs = 200
const numbers = Array.from({ length: 10_000 }, () => "0.125678").join(",")
const size = inputs * numbers.length
const vectorsOf = (count: number) => Array.from({ length: count }, (_, n) => `[${n},${numbers}]`).join(",")
const answerOf = (vectors: number) =>
  ({
    does: "answer",
    status: 200,
    body: `{"embeddings":[${vectorsOf(vectors)}],"prompt_eval_count":${vectors}}`
  }) as const
const embedOf = (texts: number) => ({ model: "embedder", input: Array.from({ length: texts }, () => "x") })
const large = answerOf(inputs)

/** A client of `/api/embed` that reads nothing of its answer until it is resumed. */
const unreading = Effect.fnUntraced(function* (secret: string, texts = inputs) {
  const { url } = yield* Gateway
  const socket = yield* Effect.acquireRelease(
    Effect.sync((): Socket => connect(Number(new URL(url).port), "127.0.0.1")),
    (open) => Effect.sync(() => void open.destroy())
  )
  socket.on("error", () => socket.destroy())
  const text = { bytes: 0, chunks: new Array<Buffer>() }
  socket.on("data", (chunk) => {
    text.bytes += chunk.length
    text.chunks.push(chunk)
  })
  socket.pause()
  socket.write(rawPost("/api/embed", secret, JSON.stringify(embedOf(texts)), []))
  return { socket, text }
})

/** What the requests of the gateway hold of its memory, in bytes. */
const memoryInUse = figureOf("tollgate_memory_bytes")

const deep = `${'{"a":'.repeat(20_000)}1${"}".repeat(20_000)}`
const deepCall = `{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":${deep}}}]},"done":false}`

inWorld(layerGateway({ CLIENT_STALL_TIMEOUT_MS: "10000", CONCURRENCY_LEASE_S: "3" }))("an answer", (test) => {
  test("when nobody reads it, then its slot is free, its tokens are settled, and its memory counts until it is read", function* () {
    const backend = yield* Fake
    const { secret, prefix } = yield* newKey({ concurrent: 1 })
    backend.script(large)
    const { socket, text } = yield* unreading(secret)
    const rows = yield* eventually(
      sql<{ status: number; tokens_in: bigint }>`
          SELECT status, tokens_in FROM audit_log WHERE key_prefix = ${prefix} AND status = 200`,
      (found) => found.length > 0
    )
    assert.isTrue((rows[0]?.tokens_in ?? 0n) > 0n)
    const chat = () => call("/api/chat", { secret, body: hello({ stream: false }) })
    assert.strictEqual((yield* chat()).status, 200)
    // It reads nearly all of it, a little at a time.
    while (text.bytes < size / 2) {
      const before = text.bytes
      socket.resume()
      assert.isTrue(yield* comesTrue(() => text.bytes > before))
      socket.pause()
      // So much may come at once that the rest is in the buffers of the kernel.
      if (text.bytes < size / 2) assert.isAtLeast(yield* memoryInUse, size, "all of it is in memory")
    }
    socket.resume()
    yield* eventually(
      Effect.sync(() => text.bytes),
      (bytes) => bytes > size
    )
    // Its numbers are in order. Each of its vectors is another one.
    const answered = Buffer.concat(text.chunks).toString()
    assert.isTrue(answered.includes(vectorsOf(inputs)))
    assert.isBelow(yield* eventually(memoryInUse, (bytes) => bytes < size), size)
  })

  test("when its client leaves while it is written, then its memory is free", function* () {
    const backend = yield* Fake
    const { secret } = yield* newKey()
    backend.script(large)
    const { socket } = yield* unreading(secret)
    assert.isAtLeast(yield* eventually(memoryInUse, (bytes) => bytes >= size), size)
    socket.destroy()
    assert.isBelow(yield* eventually(memoryInUse, (bytes) => bytes < size), size)
  })

  for (const stream of [true, false]) {
    test(`when the backend's tool arguments are too deep, then client and row say 502 (stream: ${stream})`, function* () {
      const backend = yield* Fake
      const { secret } = yield* newKey()
      for (const path of ["/api/chat", "/v1/chat/completions"]) {
        backend.script({ does: "stream", lines: [fake.chat("a"), deepCall, fake.done()], gapMs: 30 })
        const answer = yield* call(path, { secret, body: hello({ stream }) })
        assert.strictEqual(answer.status, stream ? 200 : 502, answer.text.slice(0, 300))
        assert.include(answer.text, "model backend unavailable")
        assert.strictEqual((yield* rowOf(answer))?.status, 502)
      }
    })
  }

  for (const [name, second] of [
    ["an Expect that nobody understands", "GET /api/version HTTP/1.1\r\nHost: h\r\nExpect: wonders\r\n\r\n"],
    ["a CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"]
  ] as const) {
    test(`when ${name} comes behind it on its connection, then nothing is written into its middle`, function* () {
      const { url } = yield* Gateway
      const backend = yield* Fake
      const { secret } = yield* newKey()
      const words = ["one", "two", "three", "four"]
      backend.script({ does: "stream", lines: [...words.map(fake.chat), fake.done()], gapMs: 60 })
      const first = rawPost("/api/chat", secret, JSON.stringify(hello()), [])
      const { closed, text } = yield* talk(url, first, {
        also: (socket) => void socket.once("data", () => socket.write(second))
      })
      assert.isTrue(closed)
      const [stream, ...others] = responsesIn(text)
      if (second.startsWith("CONNECT")) {
        // Cut, and it shows.
        assert.notInclude(text, "forbidden")
        assert.isUndefined(stream)
      } else {
        assert.strictEqual(stream?.body.trimEnd().split("\n").length, 5)
        // It came too early: the stream is the last answer of the connection.
        assert.lengthOf(others, 0)
      }
    })
  }

  test("when a connection asks for a tunnel and is reset, then the gateway goes on", function* () {
    const { url } = yield* Gateway
    for (let i = 0; i < 5; i++) {
      yield* talk(url, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", {
        also: (socket) => void socket.once("data", () => socket.resetAndDestroy())
      })
    }
    assert.strictEqual((yield* call("/healthz")).status, 200)
  })
})

// The least that there can be: 32 MiB for requests and answers.
inWorld(layerGateway({ MEMORY_MAX_BYTES: "268435456" }))(
  "when there is little memory for answers",
  (test) => {
    test("when many large ones are asked for at once, then they come one after the other, and nobody is refused", function* () {
      const backend = yield* Fake
      const keys = yield* Effect.forEach([1, 2, 3], () => newKey())
      backend.script(...keys.map(() => answerOf(inputs / 4)))
      const answers = yield* Effect.forEach(
        keys,
        ({ secret }) => call("/api/embed", { secret, body: embedOf(inputs / 4) }),
        {
          concurrency: "unbounded"
        }
      )
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        keys.map(() => 200)
      )
      for (const { text } of answers) assert.include(text, vectorsOf(1))
    })
  }
)

// 84 MiB for requests and answers.
inWorld(layerGateway({ MEMORY_MAX_BYTES: "393216000" }))(
  "an answer that takes most of the memory",
  (test) => {
    test("when a key does not read it, then the key gets no other until it has read it", function* () {
      const backend = yield* Fake
      const { prefix, secret } = yield* newKey()
      const other = yield* newKey()
      // One key alone may hold a quarter of the memory unread. 27 MB are more, also without the 4 MB that the kernel takes.
      // While it is collected it counts three times.
      backend.script(answerOf(300))
      const { socket } = yield* unreading(secret, 300)
      yield* eventually(
        sql`SELECT 1 FROM audit_log WHERE key_prefix = ${prefix} AND status = 200`,
        (rows) => rows.length === 1
      )
      const chat = (key: string) => call("/api/chat", { secret: key, body: hello({ stream: false }) })
      const calls = backend.requests.length
      const refused = yield* chat(secret)
      assert.strictEqual(refused.status, 429)
      assert.include(refused.text, "concurrency_limit_exceeded")
      assert.strictEqual(backend.requests.length, calls)
      assert.strictEqual((yield* chat(other.secret)).status, 200)
      socket.resume()
      const served = yield* eventually(chat(secret), ({ status }) => status === 200)
      assert.strictEqual(served.status, 200)
    })

    test("when a key leaves more answers unread than it has slots, then the slowest are cut, and others are served", function* () {
      const backend = yield* Fake
      const { prefix, secret } = yield* newKey({ concurrent: 1 })
      const other = yield* newKey()
      const sockets: Array<Socket> = []
      for (let n = 1; n <= 4; n += 1) {
        // 9 MB: one key may hold two of them.
        backend.script(answerOf(100))
        sockets.push((yield* unreading(secret, 100)).socket)
        const ended = sql`SELECT 1 FROM audit_log WHERE key_prefix = ${prefix} AND status = 200`
        assert.lengthOf(yield* eventually(ended, (rows) => rows.length === n), n)
        assert.isBelow(yield* memoryInUse, 30_000_000)
      }
      const cut = Effect.sync(() => sockets.map(({ destroyed }) => destroyed))
      const two = (found: ReadonlyArray<boolean>) => found.filter(Boolean).length === 2
      sockets.slice(0, 2).forEach((socket) => socket.resume())
      assert.deepStrictEqual(yield* eventually(cut, two), [true, true, false, false])
      const body = hello({ stream: false })
      assert.strictEqual((yield* call("/api/chat", { secret: other.secret, body })).status, 200)
    })
  }
)
