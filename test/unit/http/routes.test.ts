import { assert, describe, it } from "@effect/vitest"
import { routeOf, routes } from "../../../src/http/routes.ts"

describe("the allow-list", () => {
  it("when a method and a path stand in the table, then it finds their row, with and without a query", () => {
    for (const route of routes) {
      assert.strictEqual(routeOf(route.method, route.path), route)
      assert.strictEqual(routeOf(route.method, `${route.path}?`), route)
      assert.strictEqual(routeOf(route.method, `${route.path}?x=/../api/pull?y`), route)
    }
  })

  it("when the method is HEAD, then it finds the row of GET and of no other method", () => {
    for (const route of routes) {
      assert.strictEqual(routeOf("HEAD", route.path), route.method === "GET" ? route : undefined)
    }
  })

  it("when the method is another than the table's, then it finds nothing", () => {
    for (const { method, path } of routes) {
      for (const other of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post", "get"]) {
        if (other !== method) assert.isUndefined(routeOf(other, path), `${other} ${path}`)
      }
    }
  })

  it("when one byte of a path is another, then it finds nothing", () => {
    for (const { method, path } of routes) {
      for (let i = 0; i <= path.length; i += 1) {
        for (const byte of ["/", ".", "%", "A", "\\", ";", "#", " ", "\0", "é"]) {
          const inserted = path.slice(0, i) + byte + path.slice(i)
          assert.isUndefined(routeOf(method, inserted), `${method} ${inserted}`)
        }
        const encoded = `${path.slice(0, i)}%${path.charCodeAt(i).toString(16)}${path.slice(i + 1)}`
        if (i < path.length) assert.isUndefined(routeOf(method, encoded), `${method} ${encoded}`)
      }
      assert.isUndefined(routeOf(method, path.toUpperCase()))
      assert.isUndefined(routeOf(method, `http://h${path}`))
    }
  })

  it("when a target is not in the table byte for byte, then it finds nothing", () => {
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
})
