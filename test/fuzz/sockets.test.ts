import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { assertRefusal } from "../edge/attacks/checks.ts"
import {
  call,
  eventually,
  Fake,
  Gateway,
  hello,
  installed,
  layerGateway,
  newKey
} from "../support/Gateway.ts"
import { rawPost, talk, type Talk } from "../support/RawClient.ts"
import { mutateBytes } from "./bytes.ts"
import { Random } from "./Random.ts"
import { full, keep, kept, seed, tell } from "./run.ts"
import { inWorld } from "../support/testWith.ts"

const count = full ? 3000 : 200

/** Stands for the key of the run in what is kept. */
const placeholder = "tg_00000000000000000000000000000000000000000"

const chat = JSON.stringify(hello({ stream: false }))
const seeds = [
  rawPost("/api/chat", placeholder, chat),
  rawPost("/v1/chat/completions", placeholder, chat, []),
  rawPost("/api/generate", placeholder, "2\r\n{}\r\n0\r\n\r\n", ["Transfer-Encoding: chunked"]),
  rawPost("/api/chat", placeholder, chat, [
    "Expect: 100-continue",
    "Connection: keep-alive, Upgrade",
    "Upgrade: x"
  ]),
  Buffer.from(
    `GET /api/tags HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${placeholder}\r\nX-Request-ID: a\r\n\r\n`
  ),
  Buffer.from("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\nGET /api/pull HTTP/1.1\r\nHost: h\r\n\r\n"),
  Buffer.from("HEAD /api/version HTTP/1.0\r\n\r\n"),
  Buffer.from("OPTIONS * HTTP/1.1\r\nHost: h\r\nOrigin: https://evil\r\n\r\n"),
  Buffer.from("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")
] as const

const expected = new Set([100, 200, 400, 401, 403, 408, 413, 417, 431])

/** Whole answers of known statuses in our shape, whatever was said. */
const assertAnswers = ({ responses }: Talk, bodiless: boolean): void => {
  for (const response of responses) {
    assert.isTrue(expected.has(response.status), response.text.slice(0, 300))
    if (response.status >= 400 && !bodiless) assertRefusal(response, response.status, "an answer")
  }
}

const say = Effect.fnUntraced(function* (secret: string, bytes: Buffer) {
  const { url } = yield* Gateway
  const sent = Buffer.from(bytes.toString("latin1").replaceAll(placeholder, secret), "latin1")
  const bodiless = /^\s*HEAD /.test(sent.toString("latin1"))
  const heard = yield* talk(url, sent, {
    patienceMs: 3000,
    bodiless,
    // What is not a whole request by now never will be.
    also: (socket) => void setTimeout(() => socket.end(), 150)
  })
  assertAnswers(heard, bodiless)
  return heard.responses.map(({ status }) => status)
})

inWorld(layerGateway())("mangled bytes on the socket", (test) => {
  test("when bytes are random, then the answer is whole and in our shape or there is none, and nothing is left behind", function* () {
    const backend = yield* Fake
    const { secret } = yield* newKey({ concurrent: 50 })
    yield* call("/api/version", { secret })
    const random = new Random(seed)
    const statuses = new Map<number, number>()
    const cases = Array.from({ length: count }, () => {
      const bytes = random.pick([...seeds])
      return mutateBytes(bytes, random, random.chance(2) ? 1 : 4)
    })
    yield* Effect.forEach(
      cases,
      (bytes, i) =>
        say(secret, bytes).pipe(
          Effect.tapCause(() => Effect.sync(() => tell(`run ${i} failed, kept as ${keep("socket", bytes)}`))),
          Effect.map((seen) => {
            for (const status of seen) statuses.set(status, (statuses.get(status) ?? 0) + 1)
          })
        ),
      { concurrency: 8, discard: true }
    )
    tell(`${count} connections: ${JSON.stringify(Object.fromEntries([...statuses].sort()))}`)
    for (const request of backend.requests) {
      assert.include(["/api/chat", "/api/generate"], request.path)
      assert.include(installed, request.body?.["model"])
    }
    assert.strictEqual((yield* call("/healthz")).status, 200)
    // Every slot that was taken is free again.
    const metrics = yield* eventually(
      call("/metrics"),
      ({ text }) => !/^tollgate_open_leases [1-9]/m.test(text)
    )
    assert.notMatch(metrics.text, /^tollgate_open_leases [1-9]/m)
    const after = yield* call("/api/chat", { secret, body: hello({ stream: false }) })
    assert.strictEqual(after.status, 200, after.text)
  })

  for (const { name, target, bytes } of kept) {
    if (target !== "socket") continue
    test(`when ${name} of the corpus is sent, then the same holds`, function* () {
      const { secret } = yield* newKey()
      yield* say(secret, bytes)
      assert.strictEqual((yield* call("/healthz")).status, 200)
    })
  }
})
