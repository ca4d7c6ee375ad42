import { assert } from "@effect/vitest"
import { auditRow, call, Gateway, layerGateway } from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"

inWorld(layerGateway({ PLAYGROUND_ENABLED: "true" }))("a playground that is on", (test) => {
  test("when anybody opens it, then it is one page with its policy, without an audit row", function* () {
    const { status, headers, text } = yield* call("/playground?x=1")
    assert.strictEqual(status, 200)
    assert.strictEqual(headers.get("content-type"), "text/html; charset=utf-8")
    assert.include(headers.get("content-security-policy"), "default-src 'none'")
    assert.strictEqual(headers.get("x-frame-options"), "DENY")
    assert.include(text, "<title>Tollgate playground</title>")
    assert.isUndefined(yield* auditRow(headers.get("x-request-id")))
    const head = yield* call("/playground", { method: "HEAD" })
    assert.deepStrictEqual([head.status, head.text], [200, ""])
    for (const path of ["/playground/", "/Playground", "/playground/playground.js", "/favicon.ico"])
      assert.strictEqual((yield* call(path)).status, 403, path)
    assert.strictEqual((yield* call("/playground", { body: {} })).status, 403)
  })
})

inWorld(layerGateway({ PLAYGROUND_ENABLED: "false" }))("a playground that is off", (test) => {
  test("when anybody opens it, then it is a blocked path like any other", function* () {
    yield* Gateway
    const [page, other] = [yield* call("/playground"), yield* call("/nothing-here")]
    assert.strictEqual(page.status, 403)
    const same = (text: string) => text.replace(/"request_id":"[^"]*"/, "")
    assert.strictEqual(same(page.text), same(other.text))
    assert.deepInclude(yield* auditRow(page.headers.get("x-request-id")), {
      status: 403,
      error_type: "forbidden"
    })
  })
})
