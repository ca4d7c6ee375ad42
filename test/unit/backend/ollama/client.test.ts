import { assert, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Logger, Stream } from "effect"
import { describe } from "vitest"
import { Backend } from "../../../../src/backend/Backend.ts"
import { verdictOf } from "../../../../src/backend/errors.ts"
import { fake } from "../../../support/FakeBackend.ts"
import { callOf } from "../../../support/permits.ts"
import {
  failure,
  forward,
  generate,
  layerPatient,
  named,
  run,
  stream,
  test,
  texts,
  withBackend
} from "../calls.ts"
import { ownTimeMs, atMost } from "../../../support/wait.ts"

describe("a model server that hangs", () => {
  test(
    "when it answers no ping either, then a request ends soon, as an outage for everybody, and has its whole time again later",
    function* (backend) {
      const { ping } = yield* Backend
      backend.onLookup({ does: "hang" })
      backend.script({ does: "hang" })
      assert.strictEqual((yield* Effect.flip(ping)).fault, "timeout")
      const begun = ownTimeMs()
      const error = yield* Effect.flip(run())
      assert.isBelow(ownTimeMs() - begun, atMost(2000))
      assert.strictEqual(verdictOf(error), "outage")
      backend.onLookup(undefined)
      yield* ping
      backend.script({ does: "hang" })
      const later = yield* Effect.timed(Effect.flip(run()))
      assert.isAbove(Duration.toMillis(later[0]), 2900)
      assert.strictEqual(verdictOf(later[1]), "failure")
    },
    { firstByteTimeoutMs: 3000, notAnsweringMs: 200 }
  )

  test(
    "when it answers again within the short wait, then the request goes on",
    function* (backend) {
      const { ping } = yield* Backend
      backend.onLookup({ does: "hang" })
      assert.strictEqual((yield* Effect.flip(ping)).fault, "timeout")
      backend.onLookup(undefined)
      backend.script(stream([fake.chat("late"), fake.done()], { gapMs: 1200 }))
      const answer = yield* Effect.forkChild(texts, { startImmediately: true })
      yield* ping
      assert.include(yield* Fiber.join(answer), "late")
    },
    { notAnsweringMs: 1000 }
  )

  it.live("when a request comes while another waits in vain, then both end together, as one failure", () =>
    withBackend(
      (backend) =>
        Effect.gen(function* () {
          backend.script({ does: "hang" }, { does: "hang" })
          const late = Effect.flip(run())
          const first = yield* Effect.forkChild(late, { startImmediately: true })
          yield* backend.until(() => backend.requests.length === 1)
          // Real time: the server has to be silent for a part of its time first.
          yield* Effect.sleep("1500 millis")
          const errors = [yield* late, yield* Fiber.join(first)]
          assert.deepStrictEqual(errors.map(named), ["timeout", "timeout"])
          assert.deepStrictEqual(errors.map(verdictOf), ["ignored", "failure"])
        }),
      { firstByteTimeoutMs: 3000 }
    ).pipe(
      Effect.timed,
      Effect.tap(([took]) => Effect.sync(() => assert.isBelow(Duration.toMillis(took), atMost(4400))))
    )
  )
})

describe("what the backend is sent", () => {
  test("when it is called, then it gets the discovered name, a stream, a bound, the kept fields, and four headers", function* (backend) {
    yield* run(callOf({ options: { temperature: 0.5, num_predict: 99_999 } }, 42))
    yield* run(generate)
    const [chat, generated] = backend.requests
    assert.strictEqual(chat?.path, "/api/chat")
    assert.strictEqual(chat?.method, "POST")
    assert.deepStrictEqual(chat?.body, {
      messages: [{ role: "user", content: "hi" }],
      model: "fake:latest",
      stream: true,
      options: { temperature: 0.5, num_predict: 42 }
    })
    assert.deepStrictEqual(Object.keys(chat?.headers ?? {}).sort(), [
      "accept",
      "connection",
      "content-length",
      "content-type",
      "host"
    ])
    assert.strictEqual(chat?.headers.host, `127.0.0.1:${backend.port}`)
    assert.strictEqual(generated?.path, "/api/generate")
  })

  test("when the model server is older than what is supported, then a line says so once for each version", function* (backend) {
    const { ping } = yield* Backend
    const lines: Array<unknown> = []
    const ear = Logger.make<unknown, void>(({ message }) => void lines.push(message))
    const said = Effect.fnUntraced(function* (version: unknown) {
      backend.onLookup({ does: "answer", status: 200, body: JSON.stringify({ version }) })
      return yield* Effect.provide(ping, Logger.layer([ear]))
    })
    const line = (version: string) => ["the model server is too old", { version, oldest: "0.33" }]
    assert.deepStrictEqual(yield* said("0.24.0"), { tooOld: "0.24.0" })
    yield* said("0.24.0")
    assert.deepStrictEqual(yield* said("0.9.6-rc1"), { tooOld: "0.9.6-rc1" })
    assert.deepStrictEqual(lines, [line("0.24.0"), line("0.9.6-rc1")])
    // A build from the sources says 0.0.0.
    for (const version of ["0.33.0", "0.33.3-rc2", "0.100.0", "1.0.0", "0.0.0", "", 24, null])
      assert.deepStrictEqual(yield* said(version), {}, String(version))
    assert.lengthOf(lines, 2)
  })

  test("when the backend's address has a path, then the call goes below it", function* (backend) {
    yield* Effect.provide(run(), layerPatient(`${backend.url}/gpu-1/`))
    assert.strictEqual(backend.requests[0]?.path, "/gpu-1/api/chat")
  })

  test(
    "when a request has ended, then the next one uses its connection",
    function* (backend) {
      for (let i = 0; i < 10; i += 1) yield* run()
      assert.strictEqual(backend.connections, 1)
    },
    { connections: 1 }
  )
})

describe("frames", () => {
  const lines = [fake.chat("Grüße"), fake.chat(" 🚀"), fake.chat("!"), fake.done()]
  for (const [how, more] of [
    ["split at every byte", { split: 1 }],
    ["all in one packet", { together: true }],
    ["ended with CRLF", { newline: "\r\n" }],
    ["with blank lines between", { newline: "\n\n" }],
    ["without a last newline", { unterminated: true }],
    ["as plain JSON type", { contentType: "application/json; charset=utf-8" }]
  ] as const) {
    test(`when ${how}, then the frames come through whole`, function* (backend) {
      backend.script(stream(lines, more))
      assert.strictEqual(yield* texts, "Grüße| 🚀|!|")
    })
  }

  test("when a model was only loaded, then its answer is one object", function* (backend) {
    const body = `{"model":"fake","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"load"}`
    backend.script({ does: "answer", status: 200, body })
    const frames = yield* run()
    assert.deepStrictEqual(frames, [
      { createdAt: "2026-01-01T00:00:00Z", text: "", done: true, doneReason: "load" }
    ])
  })

  test("when frames come after the final one, then they are dropped", function* (backend) {
    const extra = [fake.chat("x"), fake.done("chat", { eval_count: 9999 })]
    backend.script(stream([...lines, ...extra]), stream([...lines, ...extra], { together: true }))
    assert.strictEqual(yield* texts, "Grüße| 🚀|!|")
    assert.strictEqual(yield* texts, "Grüße| 🚀|!|")
  })

  test("when a response goes on for a second after its final frame, then its connection is closed", function* (backend) {
    const extra = Array.from({ length: 20 }, () => fake.chat("x"))
    const isClosed = () => backend.requests.at(-1)?.closedAt !== undefined
    backend.script(stream([...lines, ...extra], { gapMs: 200 }))
    assert.strictEqual(yield* texts, "Grüße| 🚀|!|")
    yield* backend.until(isClosed)
    // The final frame is in the first read.
    backend.script(stream([fake.done(), ...extra], { gapMs: 200 }))
    assert.strictEqual(yield* texts, "")
    yield* backend.until(isClosed)
  })

  test("when frames come one at a time, then each is passed on at once, one chunk a read", function* (backend) {
    backend.script(stream(lines, { gapMs: 30 }), stream(lines, { together: true }))
    const sizes = Effect.scoped(
      Effect.flatMap(forward(), (frames) =>
        Stream.runCollect(Stream.map(Stream.chunks(frames), (c) => c.length))
      )
    )
    assert.deepStrictEqual(yield* sizes, [1, 1, 1, 1])
    assert.deepStrictEqual(yield* sizes, [4])
  })
})

describe("one second attempt", () => {
  test(
    "when a used connection died before any answer, then the call is sent again",
    function* (backend) {
      yield* run()
      backend.script({ does: "reset" })
      assert.strictEqual(yield* texts, "Hello| world|!|")
      assert.deepStrictEqual(
        backend.requests.map(({ connection }) => connection),
        [0, 0, 1]
      )
    },
    { connections: 1 }
  )

  test(
    "when the second attempt fails as well, then there is no third",
    function* (backend) {
      yield* run()
      backend.script({ does: "reset" }, { does: "reset" })
      assert.strictEqual(yield* failure, "cut")
      assert.strictEqual(backend.requests.length, 3)
    },
    { connections: 1 }
  )

  test(
    "when the first attempt took most of the time, then the second has only the rest",
    function* (backend) {
      yield* run()
      backend.script({ does: "reset", afterMs: 700 }, { does: "hang" })
      const begun = ownTimeMs()
      assert.strictEqual(yield* failure, "timeout")
      assert.isBelow(ownTimeMs() - begun, atMost(1400))
      assert.strictEqual(backend.requests.length, 3)
    },
    { connections: 1, firstByteTimeoutMs: 1000 }
  )

  test(
    "when an answer has begun, then the call is not sent again",
    function* (backend) {
      yield* run()
      backend.script(stream([], { ends: "reset" }))
      assert.strictEqual(yield* failure, "cut")
      assert.strictEqual(backend.requests.length, 2)
    },
    { connections: 1 }
  )
})

describe("a client that leaves", () => {
  test(
    "when a client leaves while it waits for a connection, then its call never reaches the backend",
    function* (backend) {
      backend.script({ does: "hang" })
      const first = yield* Effect.forkChild(run())
      yield* backend.until(() => backend.requests.length === 1)
      const second = yield* Effect.forkChild(run())
      yield* Effect.sleep("20 millis")
      yield* Fiber.interrupt(second)
      yield* Fiber.interrupt(first)
      yield* run()
      assert.strictEqual(backend.requests.length, 2)
    },
    { connections: 1 }
  )

  it.live(
    "when a client does not read, then the backend stops writing, nothing times out and memory stays small",
    () => {
      // A busy machine may leave the backend no time to write for a second.
      const idleMs = Math.ceil(atMost(700))
      return withBackend(
        (backend) =>
          Effect.gen(function* () {
            backend.script({ does: "flood", line: `${JSON.stringify(fake.chat("x".repeat(1000)))}\n` })
            const frames = yield* forward(callOf({}, 1_000_000))
            const pull = yield* Stream.toPull(frames)
            yield* pull
            const look = Effect.sync(() => backend.requests[0]?.written ?? 0)
            // It stops for longer than an idle stream may last.
            let written = -1
            while (written !== (yield* look)) {
              written = yield* look
              yield* Effect.sleep(idleMs + 100)
            }
            // What the kernel's own buffers and ours hold; without a pause it would write for ever.
            assert.isBelow(written, 16 * 1024 * 1024)
            let bytes = 0
            while (bytes < 20 * 1024 * 1024) for (const frame of yield* pull) bytes += frame.text.length
            assert.isAbove(backend.requests[0]?.written ?? 0, written)
          }).pipe(Effect.scoped),
        { idleTimeoutMs: idleMs, maxDurationMs: 600_000 }
      )
    }
  )
})

describe("lists", () => {
  test("when the backend lists remote models or no entries, then they are left out", function* (backend) {
    backend.setModels([
      "a:latest",
      { name: "b:latest", remote_host: "https://ollama.com" },
      { name: "c:latest", remote_model: "c" },
      { name: "d:cloud" },
      { name: "e:120b-cloud" },
      { name: "f:Cloud" },
      { name: 7 },
      {
        name: "cloudy:latest",
        details: { parent_model: "/root/private", family: "x" },
        capabilities: ["vision"]
      }
    ])
    const models = yield* Effect.flatMap(Backend, ({ models }) => models)
    assert.deepStrictEqual(
      models.map(({ name }) => name),
      ["a:latest", "cloudy:latest"]
    )
    assert.deepInclude(models[1]?.details, { parent_model: "", family: "x" })
    assert.deepStrictEqual(models[1]?.capabilities, ["vision"])
  })

  for (const [how, behaviour] of [
    ["an error", { does: "answer", status: 500 }],
    ["not JSON", { does: "answer", status: 200, body: "<html>" }],
    ["another object", { does: "answer", status: 200, body: `{"data":[]}` }],
    ["a redirect", { does: "answer", status: 301, headers: { location: "http://127.0.0.1:9/" } }],
    ["a 404", { does: "answer", status: 404 }]
  ] as const) {
    test(`when it ${how}, then listing fails`, function* (backend) {
      backend.onLookup(behaviour)
      const error = yield* Effect.flip(Effect.flatMap(Backend, ({ models }) => models))
      assert.strictEqual(error._tag, "BackendFailed")
    })
  }
})
