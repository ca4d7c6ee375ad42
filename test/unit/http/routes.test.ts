import { assert, describe, it } from "@effect/vitest"
import { routeOf } from "../../../src/http/routes.ts"

describe("the allow-list", () => {
  it("knows its routes, with and without a query, and HEAD for GET", () => {
    assert.strictEqual(routeOf("POST", "/api/chat")?._tag, "Inference")
    assert.strictEqual(routeOf("POST", "/v1/chat/completions?x=/../y")?._tag, "Inference")
    assert.strictEqual(routeOf("HEAD", "/api/tags")?._tag, "List")
    assert.strictEqual(routeOf("GET", "/healthz?/../api/pull")?._tag, "Ops")
  })

  it("misses everything else, byte for byte", () => {
    const targets = [
      "/api/pull",
      "/api//chat",
      "//api/chat",
      "/api/chat/",
      "/api/./chat",
      "/api/chat/../chat",
      "/API/CHAT",
      "/api/%63hat",
      "/api/chat;x",
      "/api/chat#x",
      "/api/chat%00",
      "/api\\chat",
      "http://h/api/chat",
      "http://u:p@h/api/chat",
      "*",
      "",
      "/",
      "/v1/models/x",
      "/v1/responses",
      "/healthz;/api/chat",
      "/api/chat%20",
      " /api/chat",
      "/api/ps",
      "/api/blobs/sha256:x"
    ]
    for (const method of [
      "GET",
      "HEAD",
      "POST",
      "PUT",
      "DELETE",
      "OPTIONS",
      "TRACE",
      "QUERY",
      "get",
      "post"
    ]) {
      for (const target of targets) assert.isUndefined(routeOf(method, target), `${method} ${target}`)
    }
  })

  it("takes a wrong method for a miss", () => {
    assert.isUndefined(routeOf("GET", "/api/chat"))
    assert.isUndefined(routeOf("HEAD", "/api/chat"))
    assert.isUndefined(routeOf("POST", "/api/tags"))
  })
})
