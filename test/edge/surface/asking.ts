/** Sends one request through the whole gateway and returns what the backend got for it. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { tagsEntry } from "../../../src/backend/demo/wire.ts"
import type { Json, JsonObject } from "../../../src/domain/Inference.ts"
import { call, eventually, Fake, installed, newKey } from "../../support/Gateway.ts"

export const live = { excludeTestServices: true } as const

export interface Asking {
  readonly secret?: string
  readonly headers?: Readonly<Record<string, string>>
}

/** Asks with a key of its own, unless one is given. */
export const ask = Effect.fnUntraced(function* (path: string, body: unknown, asking: Asking = {}) {
  const backend = yield* Fake
  const secret = asking.secret ?? (yield* newKey()).secret
  const before = backend.requests.length
  const answer = yield* call(path, { secret, body, ...(asking.headers ? { headers: asking.headers } : {}) })
  const calls = backend.requests.slice(before)
  return {
    ...answer,
    contentType: answer.headers.get("content-type"),
    calls,
    /** what the backend was sent, when it was one call */
    sent: calls[0]?.body
  }
})

type Answer = Effect.Success<ReturnType<typeof ask>>

export const json = (answer: { readonly text: string }) => JSON.parse(answer.text)

/** The lines of an NDJSON answer, every one of them ended. */
export const lines = (answer: { readonly text: string }) => {
  assert.isTrue(answer.text.endsWith("\n"), "the last line has no newline")
  return answer.text
    .slice(0, -1)
    .split("\n")
    .map((line) => JSON.parse(line))
}

/** The data of every server-sent event but `[DONE]`, and whether that was the last. */
export const events = (answer: { readonly text: string }) => {
  assert.match(answer.text, /^(?:data: [^\n]+\n\n)+$/)
  const data = answer.text
    .split("\n\n")
    .slice(0, -1)
    .map((event) => event.slice("data: ".length))
  const done = data.at(-1) === "[DONE]"
  return { chunks: (done ? data.slice(0, -1) : data).map((text) => JSON.parse(text)), done }
}

/** A 400 in our own words, before any call. */
export const assertRefused = (answer: Answer, detail: string, of = detail): void => {
  assert.strictEqual(answer.status, 400, `${of}: ${answer.text}`)
  const { error, request_id } = json(answer)
  assert.deepInclude(error, { type: "invalid_request", code: 400 }, of)
  assert.include(error.message, detail, of)
  assert.strictEqual(answer.headers.get("x-request-id"), request_id, of)
  assert.lengthOf(answer.calls, 0, `${of}: the backend was called`)
}

export const assertWell = (answer: Answer, of = ""): void =>
  assert.strictEqual(answer.status, 200, `${of} ${answer.text}`)

/** Installs models beside the usual ones and waits until the gateway has noticed. */
export const install = Effect.fnUntraced(function* (
  models: ReadonlyArray<{ readonly name: string; readonly capabilities: ReadonlyArray<string> }>,
  others: ReadonlyArray<JsonObject> = []
) {
  const backend = yield* Fake
  const entries = models.map(({ name, capabilities }) => tagsEntry(name, capabilities))
  backend.setModels([...installed, ...others, ...entries])
  const { secret } = yield* newKey()
  const seen = (text: string) => models.every(({ name }) => text.includes(`"${name}"`))
  const listed = yield* eventually(call("/api/tags", { secret }), ({ text }) => seen(text))
  assert.isTrue(seen(listed.text), listed.text)
})

export const user = (content: Json) => ({ role: "user", content })
export const chat = (more: object = {}) => ({ model: "m", messages: [user("Hello")], ...more })
export const whole = (more: object = {}) => chat({ stream: false, ...more })
export const generate = (more: object = {}) => ({ model: "m", prompt: "Hello", ...more })
