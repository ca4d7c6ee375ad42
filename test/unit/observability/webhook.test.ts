/** What a receiver gets, what becomes of its answers, and that nothing of its URL is told. */
import { createHmac } from "node:crypto"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { post } from "../../../src/observability/webhook.ts"
import { makeReceiver } from "../../support/Receiver.ts"
import { freePort } from "../../support/servers/processes.ts"
import { comesTrue } from "../../support/wait.ts"
import { testWith } from "../../support/testWith.ts"

const secret = Redacted.make("0123456789abcdef")
const message = { text: "é", user: null }
const test = testWith(it.live)

test("when a message is posted, then it is JSON, and who has the secret can check who sent it and when", function* () {
  const receiver = yield* makeReceiver
  const delivery = yield* post({ url: receiver.url, secret }, message)
  assert.deepStrictEqual(delivery, { outcome: "delivered", what: "answered 200" })
  const [{ body, signature, target, type } = { body: "", signature: "", target: "", type: "" }] =
    receiver.posted
  assert.deepStrictEqual(
    [body, target, type],
    [JSON.stringify(message), "/hidden-word?sig=a%2Fb", "application/json"]
  )
  const [, at = "", digest] = /^t=(\d{10}),v1=([0-9a-f]{64})$/.exec(signature ?? "") ?? []
  assert.closeTo(Number(at), Date.now() / 1000, 120)
  assert.strictEqual(createHmac("sha256", "0123456789abcdef").update(`${at}.${body}`).digest("hex"), digest)
  yield* post({ url: receiver.url, secret: undefined }, message)
  assert.isUndefined(receiver.posted[1]?.signature)
})

test("when the receiver refuses, then only what may pass is tried again, and a redirect is not followed", function* () {
  const receiver = yield* makeReceiver
  const answers = [204, 301, 307, 400, 403, 404, 410, 429, 500, 503] as const
  receiver.next(...answers)
  const found = yield* Effect.forEach(answers, () => post({ url: receiver.url, secret }, message))
  const expected = (outcome: string) => (status: number) => ({ outcome, what: `answered ${status}` })
  assert.deepStrictEqual<unknown>(found, [
    expected("delivered")(204),
    ...[301, 307, 400, 403, 404, 410].map(expected("refused")),
    ...[429, 500, 503].map(expected("failed"))
  ])
  assert.lengthOf(receiver.posted, answers.length)
})

test("when nobody is there, then it says so, with the code alone", function* () {
  const port = yield* freePort
  const url = Redacted.make(`http://127.0.0.1:${port}/hidden-word`)
  assert.deepStrictEqual(yield* post({ url, secret }, message), {
    outcome: "failed",
    what: "cannot be reached (ECONNREFUSED)"
  })
})

testWith(it.effect)("when the receiver hangs, then the try ends after ten seconds", function* () {
  const receiver = yield* makeReceiver
  receiver.next("nothing")
  const trying = yield* Effect.forkChild(post({ url: receiver.url, secret }, message), {
    startImmediately: true
  })
  assert.isTrue(yield* TestClock.withLive(comesTrue(() => receiver.posted.length === 1)))
  yield* TestClock.adjust("10 seconds")
  assert.deepStrictEqual(yield* Fiber.join(trying), {
    outcome: "failed",
    what: "did not answer within ten seconds"
  })
})
