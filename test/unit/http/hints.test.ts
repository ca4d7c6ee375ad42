/** What a refused path is told: made of the path and the route table, and of nothing else. */
import { assert, it } from "@effect/vitest"
import { extraSurfaces } from "../../../src/domain/Surface.ts"
import { makeHintOf } from "../../../src/http/hints.ts"
import { makeRouteOf, type Route, routes } from "../../../src/http/routes.ts"

const all: ReadonlyArray<Route> = routes
const hintOf = makeHintOf(new Set(extraSurfaces))
const isServed = (path: string) =>
  all.some(({ method }) => makeRouteOf(new Set(extraSurfaces))(method, path) !== undefined)

it("when /v1 is in a path once too often or is missing, then the hint says so, for every route", () => {
  for (const route of all) {
    const path = route.path.replace("{id}", "m")
    assert.strictEqual(hintOf(route.method, `/v1${path}?x`), "leave /v1 out of the client's base URL", path)
    assert.strictEqual(hintOf(route.method, `/api${path}`), "leave /api out of the client's base URL", path)
    const [, prefix = "", rest = ""] = /^(\/v1|\/api)(\/.+)$/.exec(path) ?? []
    if (prefix === "" || isServed(rest)) continue
    const added = isServed(`/v1${rest}`) ? "/v1" : "/api"
    assert.strictEqual(hintOf(route.method, rest), `add ${added} to the client's base URL`, rest)
  }
})

it("when the method is wrong, then the hint names the right one, and of what is served there is none", () => {
  for (const route of all) {
    const path = route.path.replace("{id}", "m")
    assert.strictEqual(hintOf("DELETE", path), `this path takes ${route.method}`, path)
    assert.isUndefined(hintOf(route.method, path), path)
    if (route.method === "GET") assert.isUndefined(hintOf("HEAD", path), path)
  }
})

it("when a surface is off, then the hint names it, whatever the method", () => {
  const hintOf = makeHintOf(new Set())
  for (const { extra, method, path } of all) {
    const hint =
      extra === undefined ? undefined : `this surface is off: EXTRA_SURFACES does not name ${extra}`
    for (const one of extra === undefined ? [method] : [method, "PUT"])
      assert.strictEqual(hintOf(one, path.replace("{id}", "m")), hint, path)
  }
})

it("when a path has a slash too many, then the hint says so; when nothing is near, there is none", () => {
  const slash = "the path has a slash too many: look at the end of the client's base URL"
  for (const path of ["//v1/models", "/v1//models", "/v1/models/", "/api/chat/", "//api//chat"])
    assert.strictEqual(hintOf("GET", path), slash, path)
  for (const path of [
    "/",
    "",
    "*",
    "/v1",
    "/api/pull",
    "/api/ps",
    "/v1/files",
    "/V1/models",
    "/v1/v1/v1/models",
    "http://h/v1/models"
  ])
    assert.isUndefined(hintOf("POST", path), path)
})
