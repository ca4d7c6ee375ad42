import { assert, describe, it } from "@effect/vitest"
import { extraSurfaces } from "../../../src/domain/Surface.ts"
import { idOf, makeRouteOf, type Route, routes } from "../../../src/http/routes.ts"

const all: ReadonlyArray<Route> = routes
const fixed = all.filter(({ path }) => !path.includes("{"))
const everywhere = makeRouteOf(new Set(extraSurfaces))

describe("the allow-list", () => {
  it("when a method and a path stand in the table, then it finds their row, with and without a query", () => {
    for (const route of all) {
      assert.strictEqual(everywhere(route.method, route.path), route)
      assert.strictEqual(everywhere(route.method, `${route.path}?`), route)
      assert.strictEqual(everywhere(route.method, `${route.path}?x=/../api/pull?y`), route)
    }
  })

  it("when a surface is not switched on, then its rows are in no list, and those of the others are", () => {
    for (const extras of [[], ...extraSurfaces.map((name) => [name])]) {
      const routeOf = makeRouteOf(new Set(extras))
      for (const route of all) {
        const isOn = route.extra === undefined || extras.includes(route.extra)
        assert.strictEqual(routeOf(route.method, route.path), isOn ? route : undefined, route.path)
      }
    }
    assert.isAtLeast(all.filter(({ extra }) => extra !== undefined).length, 1)
  })

  it("when a path has a parameter, then it finds the row for any text that is not empty, and reads the text", () => {
    const route = everywhere("GET", "/v1/models/m")
    assert.strictEqual(route?.path, "/v1/models/{id}")
    assert.isUndefined(everywhere("GET", "/v1/models/"))
    assert.isUndefined(everywhere("GET", "/v1/models/?x"))
    assert.isUndefined(everywhere("POST", "/v1/models/m"))
    if (route === undefined) return
    assert.strictEqual(idOf(route, "/v1/models/hf.co/a/b:Q4?x"), "hf.co/a/b:Q4")
    assert.strictEqual(idOf(route, "/v1/models/hf.co%2Fa%2Fb%3AQ4"), "hf.co/a/b:Q4")
    assert.isUndefined(idOf(route, "/v1/models/%zz"))
  })

  it("when the method is HEAD, then it finds the row of HEAD or GET and of no other method", () => {
    for (const route of fixed) {
      assert.strictEqual(everywhere("HEAD", route.path), route.method === "POST" ? undefined : route)
    }
  })

  it("when the method is another than the table's, then it finds nothing", () => {
    for (const { method, path } of fixed) {
      for (const other of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post", "get"]) {
        if (other !== method) assert.isUndefined(everywhere(other, path), `${other} ${path}`)
      }
    }
  })

  it("when one byte of a path is another, then it finds nothing", () => {
    const routeOf = makeRouteOf(new Set())
    for (const { extra, method, path } of fixed) {
      if (extra !== undefined) continue
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
})
