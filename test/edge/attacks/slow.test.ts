/** docs/hardening.md, H04 to H06 and H10: slow clients. The bounds are shorter here than in production. */
import { connect, type Socket } from "node:net"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { call, Gateway, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawPost } from "../../support/RawClient.ts"
import { assertAudited, assertRefusal, layerHasty, unharmed, say } from "./checks.ts"
import { makeStopwatch, atMost } from "../../support/wait.ts"
import { inWorld } from "../../support/testWith.ts"

/** Says `byte` again and again until the connection ends. */
const dripping = (byte: string, everyMs: number) => (socket: Socket) => {
  const timer = setInterval(() => socket.write(byte), everyMs)
  socket.once("close", () => clearInterval(timer))
}

inWorld(layerHasty)("a client that takes its time", (test) => {
  test("when headers come slowly, then they are cut with a 408 in the error shape, and other clients do not notice (H04)", function* () {
    const { secret } = yield* newKey()
    yield* call("/api/version", { secret })
    const others = Effect.gen(function* () {
      let slowest = 0
      for (let i = 0; i < 20; i += 1) {
        const started = makeStopwatch()
        const answer = yield* call("/api/version", { secret })
        assert.strictEqual(answer.status, 200)
        slowest = Math.max(slowest, started())
      }
      return slowest
    })
    const slow = Effect.forEach(
      Array.from({ length: 100 }),
      () => say("GET /healthz HTTP/1.1\r\nX-A: ", { also: dripping("a", 250) }),
      { concurrency: "unbounded" }
    )
    const [talks, slowest] = yield* Effect.all([slow, others], { concurrency: 2 })
    for (const { responses, closed, ms } of talks) {
      assert.isTrue(closed)
      assert.isBelow(ms, atMost(5000))
      assertRefusal(responses[0], 408, "slow headers")
    }
    assert.isBelow(slowest, atMost(1000))
  })

  for (const [name, headers] of [
    ["a slow body (H05)", []],
    ["a slow body behind Upgrade: websocket (H06)", ["Connection: Upgrade", "Upgrade: websocket"]],
    ["a slow body behind Upgrade: foo (H06)", ["Connection: Upgrade", "Upgrade: foo"]],
    ["a slow body behind Upgrade: h2c (H06)", ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"]]
  ] as const) {
    test(`when it sends ${name}, then it is refused in time, and holds no slot and no request meanwhile`, function* () {
      const { secret } = yield* newKey({ concurrent: 1, rpm: 1 })
      const head = rawPost("/api/chat", secret, "", headers)
        .toString("latin1")
        .replace("Content-Length: 0", "Content-Length: 200000")
      const slow = say(head, { also: dripping("{", 50) }).pipe(unharmed)
      const { responses, closed, ms } = yield* slow
      const id = assertRefusal(responses[0], 400, name)
      assert.isTrue(closed)
      assert.isBelow(ms, atMost(4000))
      yield* assertAudited(id, 400)
      // The only request a minute and the only slot are still there.
      const answer = yield* call("/api/chat", { secret, body: hello({ stream: false }) })
      assert.strictEqual(answer.status, 200, answer.text)
    })
  }

  test("when it has no key and its body is slow, then it is answered at once and cut in time (H05)", function* () {
    const head = "POST /api/chat HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n"
    const { responses, closed, ms } = yield* say(head, {
      also: dripping("{", 50)
    }).pipe(unharmed)
    yield* assertAudited(assertRefusal(responses[0], 401, "nobody"), 401)
    assert.strictEqual(responses.length, 1, "a second answer to one request")
    assert.isTrue(closed)
    assert.isBelow(ms, atMost(4000))
  })
})

inWorld(layerGateway())("a client that says nothing more", (test) => {
  // 10 000 are for a machine of one's own: this many show whether a connection costs more than its buffers.
  test("when 1000 connections are idle, then they cost little and others are served (H10)", function* () {
    const { url } = yield* Gateway
    const before = process.memoryUsage().rss
    const { hostname, port } = new URL(url)
    const sockets = yield* Effect.acquireRelease(
      Effect.promise(() =>
        Promise.all(
          Array.from(
            { length: 1000 },
            (_, i) =>
              new Promise<Socket>((resolve, reject) => {
                const socket = connect({
                  host: hostname,
                  port: Number(port),
                  localAddress: `127.0.0.${2 + (i % 8)}`
                })
                socket.once("error", reject)
                socket.once("data", () => resolve(socket))
                socket.write("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
              })
          )
        )
      ),
      (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
    )
    assert.isBelow((process.memoryUsage().rss - before) / 2 ** 20, 200)
    for (let i = 0; i < 10; i += 1) {
      const started = makeStopwatch()
      assert.strictEqual((yield* call("/readyz")).status, 200)
      assert.isBelow(started(), atMost(1000))
    }
    assert.isTrue(sockets.every((socket) => !socket.destroyed))
  })
})
