/** docs/hardening.md, B11 to B21: fields. The backend gets only the fields on which the gateway decided. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { tagsEntry } from "../../../src/backend/demo/wire.ts"
import type { JsonObject } from "../../../src/domain/Inference.ts"
import { call, Fake, hello, installed, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawPost } from "../../support/RawClient.ts"
import { ask, refused, sent } from "./asking.ts"
import { assertAudited, assertRefusal, unharmed, say } from "./checks.ts"
import { inWorld } from "../../support/testWith.ts"

const plain = hello({ stream: false })

inWorld(layerGateway())("a request's fields", (test) => {
  test("when a model is shown, then under the one name that was decided on, without its secrets (B11)", function* () {
    const { secret } = yield* newKey({ models: ["m"] })
    const path = "/api/show"
    for (const body of ['{"model":"m","name":"other","verbose":true}', '{"name":"m","Model":"other"}']) {
      const { raw } = yield* sent(secret, body, path)
      assert.strictEqual(raw, '{"model":"m:latest"}')
    }
    const response = yield* ask(secret, '{"model":"m"}', { path })
    const shown = JSON.parse(response?.body ?? "")
    for (const key of ["system", "template", "modelfile", "messages", "remote_host", "remote_model"]) {
      assert.notProperty(shown, key)
    }
    const other = yield* ask(secret, '{"name":"other"}', { path }).pipe(unharmed)
    yield* assertAudited(assertRefusal(other, 403, "other"), 403)
    yield* refused(secret, ['{"model":"m","model":"other"}', '{"model":1}', "{}", '{"name":[]}'], path)
  })

  test("when a model's name is no string of at most 256 characters, then it is a 400, and any string is refused without damage (B12)", function* () {
    const { secret } = yield* newKey()
    const asking = (model: unknown) => JSON.stringify(hello({ stream: false, model }))
    const long = "x".repeat(257)
    yield* refused(secret, [1, null, [], {}, "", true, ["m"], long, "x".repeat(200_000)].map(asking))
    yield* Effect.gen(function* () {
      const bodies = new Set<string>()
      for (const [name, stored] of [
        ["a\u0000b", "ab"],
        ["a\nb\u001b[31m", "ab[31m"],
        ["m\u200b", "m\u200b"],
        ["\u202em", "m"],
        ["м", "м"],
        ["ｍ", "ｍ"],
        ["e\u0301", "e\u0301"],
        ["x".repeat(256), "x".repeat(128)],
        ["'; DROP TABLE audit_log; --", "'; DROP TABLE audit_log; --"]
      ] as const) {
        const response = yield* ask(secret, asking(name))
        const id = assertRefusal(response, 403, name.slice(0, 20))
        bodies.add((response?.body ?? "").replaceAll(id, ""))
        const row = yield* assertAudited(id, 403)
        assert.strictEqual(row?.model, stored)
      }
      // Half a character: JSON can say it, Postgres cannot store it.
      const lone = yield* ask(secret, asking("X").replace('"X"', String.raw`"\ud800"`))
      const row = yield* assertAudited(assertRefusal(lone, 403, "lone surrogate"), 403)
      assert.strictEqual(row?.model, "\ufffd")
      assert.strictEqual(bodies.size, 1, "refusals differ")
    }).pipe(unharmed)
  })

  test("when models live elsewhere, then no tenant has them, not even one with all models (B14)", function* () {
    const backend = yield* Fake
    const { secret } = yield* newKey()
    const entry = (name: string, more: JsonObject) => ({ ...tagsEntry(name, ["completion"]), ...more })
    backend.setModels([
      ...installed,
      entry("hosted:latest", { remote_host: "https://ollama.com:443" }),
      entry("aliased:latest", { remote_model: "gpt" }),
      "gpt-oss:120b-cloud",
      "kimi:cloud"
    ])
    yield* Effect.addFinalizer(() => Effect.sync(() => backend.setModels(installed)))
    // Two refreshes: the list is the new one by then.
    const before = backend.lookups.length
    yield* backend.until(() => backend.lookups.length >= before + 2)
    const listed = yield* call("/api/tags", { secret })
    for (const name of ["hosted:latest", "aliased", "gpt-oss:120b-cloud", "kimi:cloud"]) {
      assert.notInclude(listed.text, name)
      const response = yield* ask(secret, JSON.stringify(hello({ stream: false, model: name }))).pipe(
        unharmed
      )
      assertRefusal(response, 403, name)
    }
  })

  test("when it is answered, then Content-Type says once that it is JSON in UTF-8 (B21)", function* () {
    const { secret } = yield* newKey()
    const body = JSON.stringify(plain)
    const untyped = (text: string) =>
      rawPost("/api/chat", secret, text)
        .toString()
        .replace(/Content-Type.*\r\n/, "")
    yield* Effect.gen(function* () {
      for (const type of [
        "text/plain",
        "application/json; charset=utf-16",
        "multipart/form-data; boundary=x",
        "*/*",
        "json",
        "application/x-www-form-urlencoded; boundary=x",
        "application/json, text/plain",
        "application/jsonp",
        "application/json; charset=utf-8; charset=utf-16",
        `application/json; charset=utf-8${" ".repeat(256)}; charset=utf-16`,
        "application/json; x=y"
      ]) {
        assertRefusal(yield* ask(secret, body, { headers: [`Content-Type: ${type}`] }), 400, type)
      }
      const twice = ["Content-Type: application/json", "Content-Type: text/plain"]
      assertRefusal(yield* ask(secret, body, { headers: twice }), 400, "two of them")
      const { responses } = yield* say(untyped("model=m"), { answers: 1 })
      assertRefusal(responses[0], 400, "no type, and no JSON")
    }).pipe(unharmed)
    for (const type of [
      "APPLICATION/JSON",
      "application/json;charset=UTF-8",
      'application/json; charset="utf-8"'
    ]) {
      const response = yield* ask(secret, body, { headers: [`Content-Type: ${type}`] })
      assert.strictEqual(response?.status, 200, type)
    }
    // LiteLLM's Ollama clients say nothing.
    const { responses } = yield* say(untyped(body), { answers: 1 })
    assert.strictEqual(responses[0]?.status, 200, "none")
    // What `curl -d` says.
    const form = { headers: ["Content-Type: application/x-www-form-urlencoded; charset=utf-8"] }
    assert.strictEqual((yield* ask(secret, body, form))?.status, 200)
    assert.strictEqual((yield* ask(secret, '{"model":"m"}', { ...form, path: "/api/show" }))?.status, 200)
    assert.strictEqual((yield* ask(secret, body, { ...form, path: "/v1/chat/completions" }))?.status, 200)
  })
})
