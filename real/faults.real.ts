/** What goes wrong with a real server, and what its clients see of it. The server is this file's own. */
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { auditRow, call, eventually, Gateway, newKey } from "../test/support/Gateway.ts"
import { layerOwnGateway } from "./RealGateway.ts"
import { OwnOllama } from "./RealOllama.ts"
import { testWith } from "../test/support/testWith.ts"

const messages = [{ role: "user", content: "Say hello." }]
const short = { model: "plain", messages, stream: false, options: { num_predict: 5 } }
const long = { model: "slow", messages, options: { num_predict: 900 } }

/** A stream of which the first bytes are in; `rest` is what comes after, to the end. */
const opened = Effect.fnUntraced(function* (secret: string) {
  const { url } = yield* Gateway
  return yield* Effect.promise(async () => {
    const leaving = new AbortController()
    const answer = await fetch(new URL("/api/chat", url), {
      method: "POST",
      headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
      body: JSON.stringify(long),
      signal: leaving.signal
    })
    const reader = answer.body?.getReader()
    const first = await reader?.read()
    const rest = async (): Promise<string> => {
      const decoder = new TextDecoder()
      let text = decoder.decode(first?.value, { stream: true })
      for (;;) {
        const part = await reader?.read()
        if (part === undefined || part.done) return text
        text += decoder.decode(part.value, { stream: true })
      }
    }
    return {
      status: answer.status,
      id: answer.headers.get("x-request-id"),
      leave: () => leaving.abort(),
      rest
    }
  })
})

/** Of NDJSON, the object that came last. */
const lastLine = (text: string): string => text.trimEnd().split("\n").at(-1) ?? ""

/** Tries until the gateway answers with 200 again. */
const servesAgain = (secret: string, ms: number) =>
  eventually(call("/api/chat", { secret, body: short }), ({ status }) => status === 200, ms)

layer(layerOwnGateway({ OLLAMA_NUM_PARALLEL: "1", OLLAMA_MAX_QUEUE: "4" }, { BREAKER_OPEN_MS: "1000" }), {
  excludeTestServices: true,
  timeout: 600_000
})("a real server in trouble", (it) => {
  const test = testWith(it.effect)

  test("when a client leaves, then the server stops for it and its row says 499", function* () {
    const { secret } = yield* newKey()
    const stream = yield* opened(secret)
    assert.strictEqual(stream.status, 200)
    stream.leave()
    const row = yield* eventually(auditRow(stream.id), (found) => found !== undefined)
    assert.strictEqual(row?.status, 499)
    assert.isAbove(Number(row?.tokens_out), 0, "what was seen is charged")
    // One at a time is served: an answer at once means that the other one has ended.
    const began = performance.now()
    const next = yield* call("/api/chat", {
      secret,
      body: { ...long, stream: false, options: { num_predict: 1 } }
    })
    assert.strictEqual(next.status, 200)
    assert.isBelow(performance.now() - began, 10_000)
  })

  test("when the server serves one at a time, then all that wait are served in turn", function* () {
    const { secret } = yield* newKey()
    const answers = yield* Effect.forEach(
      Array.from({ length: 4 }, (_, i) => ({ ...short, options: { num_predict: 5, seed: i + 1 } })),
      (body) => call("/api/chat", { secret, body }),
      { concurrency: "unbounded" }
    )
    assert.deepStrictEqual(
      answers.map(({ status }) => status),
      [200, 200, 200, 200]
    )
  })

  test("when the server's queue is full, then it is a 502 with Retry-After, and the breaker stays shut", function* () {
    const { secret } = yield* newKey()
    const { url } = yield* OwnOllama
    // The queue fills up while the model loads: that takes longer than to send all requests.
    yield* Effect.promise((signal) =>
      fetch(new URL("/api/generate", url), {
        method: "POST",
        body: JSON.stringify({ model: "slow", keep_alive: 0, stream: false }),
        signal
      }).then((answer) => answer.text())
    )
    const body = { ...long, stream: false, options: { num_predict: 30 } }
    const answers = yield* Effect.forEach(
      Array.from({ length: 16 }, () => body),
      (body) => call("/api/chat", { secret, body }),
      { concurrency: "unbounded" }
    )
    const busy = answers.filter(({ status }) => status !== 200)
    assert.isAbove(busy.length, 0)
    for (const { headers, status } of busy) {
      assert.strictEqual(status, 502)
      assert.isAtLeast(Number(headers.get("retry-after")), 1)
    }
    assert.strictEqual((yield* call("/api/chat", { secret, body: short })).status, 200)
  })

  test("when a runner is killed mid-stream, then the stream ends with an error line and the next request is served", function* () {
    const { secret } = yield* newKey()
    const server = yield* OwnOllama
    const stream = yield* opened(secret)
    for (const pid of server.runners()) process.kill(pid, "SIGKILL")
    const text = yield* Effect.promise(stream.rest)
    assert.property(JSON.parse(lastLine(text)), "error")
    assert.notInclude(text, "done_reason")
    assert.notInclude(text, "runner", "nothing of the server shows")
    assert.strictEqual((yield* servesAgain(secret, 15_000)).status, 200)
  })

  test("when the server is stopped and started, then requests are 502 at once, and good again at once", function* () {
    const { secret } = yield* newKey()
    const server = yield* OwnOllama
    yield* server.stop
    const began = performance.now()
    assert.strictEqual((yield* call("/api/chat", { secret, body: short })).status, 502)
    assert.isBelow(performance.now() - began, 2000)
    yield* server.start
    assert.strictEqual((yield* servesAgain(secret, 15_000)).status, 200)
  })

  test("when the server is killed mid-stream, then the stream ends with an error line", function* () {
    const { secret } = yield* newKey()
    const server = yield* OwnOllama
    const stream = yield* opened(secret)
    const reading = yield* Effect.forkChild(Effect.promise(stream.rest))
    yield* server.kill
    const text = yield* Fiber.join(reading)
    assert.property(JSON.parse(lastLine(text)), "error")
    yield* server.start
    assert.strictEqual((yield* servesAgain(secret, 15_000)).status, 200)
  })

  test("when a model is made, then it can be used within a refresh; when it is deleted, then it is a 403", function* () {
    const { secret } = yield* newKey()
    const { url } = yield* OwnOllama
    const admin = (path: string, method: string, body: unknown) =>
      Effect.promise(async () => {
        const answer = await fetch(new URL(path, url), { method, body: JSON.stringify(body) })
        assert.strictEqual(answer.status, 200, await answer.text())
      })
    const ask = call("/api/chat", { secret, body: { ...short, model: "copied" } })
    assert.strictEqual((yield* ask).status, 403)
    yield* admin("/api/copy", "POST", { source: "plain", destination: "copied" })
    assert.strictEqual((yield* eventually(ask, ({ status }) => status === 200, 10_000)).status, 200)
    yield* admin("/api/delete", "DELETE", { model: "copied" })
    assert.strictEqual((yield* eventually(ask, ({ status }) => status === 403, 10_000)).status, 403)
  })

  test("when an answer loops, then it ends as `length`, counted, and no failure of the server", function* () {
    const { secret } = yield* newKey()
    const body = {
      model: "plain",
      prompt: "~",
      raw: true,
      options: { temperature: 0, repeat_penalty: 1, num_predict: 200 }
    }
    for (let i = 0; i < 6; i += 1) {
      const answer = yield* call("/api/generate", { secret, body })
      const last = JSON.parse(lastLine(answer.text))
      assert.deepStrictEqual([last.done, last.done_reason], [true, "length"])
      const row = yield* auditRow(answer.headers.get("x-request-id"))
      assert.isAtLeast(Number(row?.tokens_out), 30)
    }
    assert.strictEqual((yield* call("/api/chat", { secret, body: short })).status, 200)
  })
})
