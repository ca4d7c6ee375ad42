/** What `EXTRA_SURFACES` adds: without it, the paths are blocked as every other path is. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { call, layerGateway, newKey } from "../../support/Gateway.ts"
import { objection } from "../../support/openapi.ts"
import { inWorld } from "../../support/testWith.ts"

const paths = [
  ["POST", "/v1/responses"],
  ["POST", "/v1/messages"],
  ["POST", "/v1/messages?beta=true"],
  ["POST", "/v1/messages/count_tokens"],
  ["HEAD", "/api/hello"],
  ["GET", "/v1/models/m"]
] as const

inWorld(layerGateway())("without EXTRA_SURFACES", (test) => {
  test("when a path of an extra surface is asked for, then it is the 403 of every other path, byte for byte but for its hint", function* () {
    const { secret } = yield* newKey()
    for (const [method, path] of paths) {
      for (const headers of [{}, { authorization: `Bearer ${secret}` }, { "x-api-key": secret }]) {
        const body = method === "POST" ? { body: { model: "m" } } : {}
        const [answer, other] = yield* Effect.all([
          call(path, { method, headers, ...body }),
          call("/v1/other", { method, headers, ...body })
        ])
        const withoutId = ({ headers: sent, status, text }: typeof answer) => {
          const id = sent.get("x-request-id") ?? ""
          const kept = [...sent]
            .filter(([name]) => name !== "date" && name !== "x-hint")
            .map(([name, value]) => `${name}: ${value}`)
          return { status, text: text.replace(id, "id"), headers: kept.join("\n").replace(id, "id") }
        }
        assert.strictEqual(answer.status, 403)
        assert.match(
          answer.headers.get("x-hint") ?? "",
          /^this surface is off: EXTRA_SURFACES does not name \w+$/
        )
        assert.deepStrictEqual(withoutId(answer), withoutId(other), `${method} ${path}`)
      }
    }
  })
})

inWorld(layerGateway({ EXTRA_SURFACES: "responses" }))("with EXTRA_SURFACES=responses", (test) => {
  test("when a model is asked for by its id, then it is described under the name that was asked for", function* () {
    const { secret } = yield* newKey({ models: ["m"] })
    for (const id of ["m", "m:latest", "m%3Alatest"]) {
      const { status, text } = yield* call(`/v1/models/${id}`, { secret })
      assert.strictEqual(status, 200)
      const { created: _, ...rest } = JSON.parse(text)
      assert.deepStrictEqual(rest, { id: decodeURIComponent(id), object: "model", owned_by: "tollgate" })
    }
    const refused = yield* Effect.forEach(["other", "nothing", "m:7b", "%zz", "..%2Fm", "m/"], (id) =>
      call(`/v1/models/${id}`, { secret })
    )
    for (const { headers, status, text } of refused) {
      assert.strictEqual(status, 403)
      const [id, first] = [headers.get("x-request-id") ?? "", refused[0]]
      assert.strictEqual(
        text.replace(id, ""),
        first?.text.replace(first.headers.get("x-request-id") ?? "", "")
      )
    }
  })

  test("when x-api-key has a key, then it is no key on a surface that does not take it", function* () {
    const { secret } = yield* newKey()
    for (const path of ["/v1/models", "/v1/models/m", "/api/tags"])
      assert.strictEqual((yield* call(path, { headers: { "x-api-key": secret } })).status, 401)
  })
})

inWorld(layerGateway({ EXTRA_SURFACES: "responses,messages" }))(
  "with EXTRA_SURFACES=responses,messages",
  (test) => {
    test("when x-api-key has a key, then it is one for the lists of /v1 too, and for no other path", function* () {
      const { secret } = yield* newKey({ models: ["m"] })
      const ask = (path: string, headers: Readonly<Record<string, string>>) => call(path, { headers })
      for (const path of ["/v1/models", "/v1/models/m"]) {
        assert.strictEqual((yield* ask(path, { "x-api-key": secret })).status, 200)
        assert.strictEqual((yield* call(path, { secret, headers: { "x-api-key": "tg_other" } })).status, 401)
      }
      assert.strictEqual((yield* ask("/api/tags", { "x-api-key": secret })).status, 401)
    })

    test("when anthropic-version is there, then a list has the form of Anthropic's, else that of OpenAI's", function* () {
      const { secret } = yield* newKey({ models: ["m"] })
      const headers = { "x-api-key": secret, "anthropic-version": "2023-06-01" }
      const listed = JSON.parse((yield* call("/v1/models?limit=1000", { headers })).text)
      const { created_at: at, ...entry } = listed.data[0]
      assert.match(at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
      const rest = {
        type: "model",
        display_name: "m:latest",
        max_input_tokens: null,
        max_tokens: null,
        capabilities: null
      }
      assert.deepStrictEqual(entry, { id: "m:latest", ...rest })
      assert.deepInclude(listed, { has_more: false, first_id: "m:latest", last_id: "m:latest" })
      const one = JSON.parse((yield* call("/v1/models/m", { headers })).text)
      assert.deepStrictEqual(one, { ...rest, id: "m", created_at: at })
      assert.strictEqual(JSON.parse((yield* call("/v1/models", { secret })).text).object, "list")
      assert.strictEqual(objection("MessagesModelList", listed) + objection("MessagesModelEntry", one), "")
      const none = yield* newKey({ models: [] })
      const empty = yield* call("/v1/models", { headers: { ...headers, "x-api-key": none.secret } })
      assert.strictEqual(empty.text, '{"data":[],"has_more":false,"first_id":null,"last_id":null}')
    })
  }
)
