import { createServer, get, type IncomingMessage, type ServerResponse } from "node:http"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { AnswerWriter, pieceBytes } from "../../../src/http/AnswerWriter.ts"
import type { AnswerShare } from "../../../src/memory/MemoryLedger.ts"
import { listening } from "../../support/listening.ts"
import { comesTrue } from "../../support/wait.ts"
import { testWith } from "../../support/testWith.ts"

/** An answer, the client that may read it, and what its share was told. */
const makeAnswer = Effect.gen(function* () {
  const asked = yield* Deferred.make<ServerResponse>()
  const url = yield* listening(
    createServer((_, response) => Deferred.doneUnsafe(asked, Effect.succeed(response)))
  )
  const client = get(url)
  client.on("error", () => undefined)
  yield* Effect.addFinalizer(() => Effect.sync(() => client.destroy()))
  const response = yield* Deferred.await(asked)
  response.flushHeaders()
  const incoming = yield* Effect.callback<IncomingMessage>(
    (resume) => void client.once("response", (came) => resume(Effect.succeed(came)))
  )
  const [held, written]: [Array<number>, Array<number>] = [[], []]
  const share: AnswerShare = { collect: () => Effect.void, hold: (bytes) => void held.push(bytes) }
  const write = response.write.bind(response)
  response.write = (chunk: Buffer) => {
    written.push(chunk.length)
    return write(chunk)
  }
  return { client, held, read: () => incoming.setEncoding("utf8"), response, share, written }
})

const test = testWith(it.live)

test("when a client does not read, then what waits counts and goes out in pieces when it reads, and all of it comes in order", function* () {
  const { held, read, response, share, written } = yield* makeAnswer
  const writer = new AnswerWriter(response, share, () => 1000)
  const large = "ä".repeat(2_000_000)
  writer.write("begin")
  // Nothing waits.
  yield* writer.taken
  writer.write(large)
  writer.write("")
  writer.write("end")
  const last = held.at(-1) ?? 0
  assert.isAtLeast(last, Buffer.byteLength(large))
  assert.isAtMost(last, Buffer.byteLength(large) + 10_000)
  const taken = yield* Effect.forkChild(writer.taken, { startImmediately: true })
  assert.isUndefined(taken.pollUnsafe())
  const got: Array<string> = []
  let ended = false
  read().on("data", (text: string) => got.push(text))
  read().once("end", () => void (ended = true))
  yield* Fiber.join(taken)
  response.end()
  yield* comesTrue(() => ended)
  assert.isAtMost(Math.max(...written), pieceBytes)
  // Not strictEqual: the difference of such texts takes minutes to print.
  assert.isTrue(got.join("") === `begin${large}end`)
  // What the encoder keeps counts to the end.
  assert.isAtMost(held.at(-1) ?? 0, 1000 + 2 * pieceBytes)
  assert.isAtLeast(held.at(-1) ?? 0, 1000)
})

test("when a fiber waits again before the one before is told, then each is told", function* () {
  const { read, response, share } = yield* makeAnswer
  const writer = new AnswerWriter(response, share)
  read().resume()
  for (let n = 0; n < 5; n += 1) {
    writer.write("x".repeat(2 * pieceBytes))
    yield* writer.taken
  }
  response.end()
})

test("when a client has left, then nothing is written to it, and nobody waits for it", function* () {
  const { client, response, share, written } = yield* makeAnswer
  const writer = new AnswerWriter(response, share)
  const closed = new Promise((resolve) => void response.once("close", resolve))
  client.destroy()
  yield* Effect.promise(() => closed)
  writer.write("late")
  assert.deepStrictEqual(written, [])
})

test("when nothing was written since the last look and nothing waits, then the silence is broken, each time", function* () {
  const { read, response, share } = yield* makeAnswer
  const writer = new AnswerWriter(response, share)
  let said = 0
  const look = () => writer.breakSilence(() => `: ${++said}\n\n`)
  look()
  look()
  assert.strictEqual(said, 2)
  writer.write("text")
  look()
  assert.strictEqual(said, 2, "a text since the last look")
  look()
  assert.strictEqual(said, 3)
  writer.write("x".repeat(2_000_000))
  look()
  look()
  assert.strictEqual(said, 3, "the client has not read what is there")
  read().resume()
  yield* writer.taken
  look()
  assert.strictEqual(said, 4)
  response.end()
})
