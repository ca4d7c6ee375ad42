/** What a running request holds of the memory of the process, whatever its body is made of. */
import { createServer, type ServerResponse } from "node:http"
import { connect, type Socket } from "node:net"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { HttpServer } from "effect/http"
import { layerOllama } from "../../src/backend/ollama/client.ts"
import { MemoryLedger } from "../../src/memory/MemoryLedger.ts"
import { aliveBytes } from "../support/heap.ts"
import { heavyBody, places, units } from "../support/heavyBodies.ts"
import { layerInMemory, memoryKey } from "../support/inMemory.ts"
import { listening } from "../support/listening.ts"
import { comesTrue } from "../support/wait.ts"
import { testWith } from "../support/testWith.ts"

const bodyBytes = 254 * 1024
// Bodies of this size are decoded in turn, with pauses.
const atOnce = 4
const most = 1_000_000
/** The heap is not exact. */
const inexact = 32_768

/** A model server that takes requests and answers none before it is told to. */
const makeSilentServer = Effect.gen(function* () {
  const waiting = new Set<ServerResponse>()
  const server = createServer((incoming, response) => {
    incoming.resume()
    incoming.once("end", () => waiting.add(response))
    response.once("close", () => waiting.delete(response))
  })
  return { url: yield* listening(server), waiting: () => waiting.size }
})

const test = testWith(it.live)

test("when requests wait for their answers, then each holds at most 1 MB and what the ledger counts, and nothing afterwards", function* () {
  const server = yield* makeSilentServer
  const limits = { rpm: 1_000_000, tpm: 1_000_000_000, concurrent: 1000 }
  const keys = [memoryKey({ limits }), memoryKey({ limits })]
  const gateway = layerInMemory({
    keys,
    backend: layerOllama({
      url: new URL(server.url),
      connectTimeoutMs: 60_000,
      firstByteTimeoutMs: 600_000,
      idleTimeoutMs: 600_000
    }),
    server: { extraSurfaces: new Set(["responses", "messages"]) }
  })
  yield* Effect.gen(function* () {
    const url = new URL(HttpServer.formatAddress((yield* HttpServer.HttpServer).address))
    const ledger = yield* MemoryLedger
    const port = Number(url.port)
    const [some, everywhere] = [Object.values(units).filter((_, i) => i % 3 === 0), Object.values(places)]
    const small = (n: number) => `"${n}"`
    const bodies = [
      // Tiny ones first: what the client and the model server of this process take too.
      ...everywhere.slice(0, 1).flatMap((place) => [0, 1].map(() => [place, small, 200] as const)),
      ...everywhere.map((place) => [place, units["distinct keys"] ?? small, bodyBytes] as const),
      ...some.flatMap((unit) =>
        everywhere[0] === undefined ? [] : [[everywhere[0], unit, bodyBytes] as const]
      )
    ]
    let measured = 0
    let tiny: readonly [alive: number, counted: number] = [0, 0]
    for (const [place, unit, bytes] of bodies) {
      const text = heavyBody(place, unit, bytes)
      const sent = (secret: string) =>
        Buffer.from(
          `POST ${place.path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`
        )
      const both = keys.map(({ secret }) => sent(secret))
      /** What one of some equal requests holds, and what is counted for it; undefined: some were refused. */
      const held = Effect.gen(function* () {
        const before = [aliveBytes(), ledger.bytes()] as const
        const answered = { count: 0 }
        const sockets = Array.from({ length: atOnce }, (_, n): Socket => {
          const socket = connect({ host: "127.0.0.1", port })
          socket.on("error", () => socket.destroy())
          // A body that is refused is answered at once.
          socket.once("data", () => (answered.count += 1))
          socket.write(both[n % 2] ?? "")
          return socket
        })
        assert.isTrue(yield* comesTrue(() => server.waiting() + answered.count === atOnce))
        const alive = (aliveBytes() - before[0]) / atOnce
        const counted = (ledger.bytes() - before[1]) / atOnce
        for (const socket of sockets) socket.destroy()
        assert.isTrue(yield* comesTrue(() => server.waiting() === 0 && ledger.bytes() === 0))
        return answered.count === 0 ? ([alive, counted] as const) : undefined
      })
      const [tinyAlive, tinyCounted] = unit === small ? [0, 0] : tiny
      const uncounted = ([alive, counted]: readonly [number, number]) =>
        alive - tinyAlive - (counted - tinyCounted)
      // What V8 compiles meanwhile, or this process does by the clock, is not there again.
      const found = yield* Effect.repeat(held, {
        times: 2,
        while: (one) => one !== undefined && unit !== small && uncounted(one) > inexact
      })
      if (found === undefined) continue
      if (unit === small) tiny = found
      else assert.isAtMost(uncounted(found), inexact, `${place.path}: more than is counted`)
      assert.isAtMost(found[0], most, `${place.path} ${unit(1).slice(0, 20)}`)
      measured += 1
    }
    assert.isAtLeast(measured, 8)
  }).pipe(Effect.provide(gateway))
})
