/**
 * What a client may have meant by a target that is not served, for the header `X-Hint`. It is made of the target and the route table
 * alone, so it tells nothing that docs/reference.md does not.
 */
import { type ExtraSurface, extraSurfaces } from "../domain/Surface.ts"
import { makeRouteOf, pathOf, type Route, routes } from "./routes.ts"

const prefixes = ["/v1", "/api"]
const methods = new Set(routes.map(({ method }) => method))
const anyRouteOf = makeRouteOf(new Set(extraSurfaces))

/** The route of a path, for whatever method, whether its surface is on or not. */
const routeAt = (path: string): Route | undefined => {
  for (const method of methods) {
    const route = anyRouteOf(method, path)
    if (route !== undefined) return route
  }
  return undefined
}

export const makeHintOf =
  (extras: ReadonlySet<ExtraSurface>) =>
  (method: string, target: string): string | undefined => {
    const path = pathOf(target)
    const route = routeAt(path)
    if (route?.extra !== undefined && !extras.has(route.extra))
      return `this surface is off: EXTRA_SURFACES does not name ${route.extra}`
    // One that is served, such as `/metrics`, is refused for another reason.
    if (route !== undefined)
      return anyRouteOf(method, path) === undefined ? `this path takes ${route.method}` : undefined
    const isServed = (meant: string) => routeAt(meant) !== undefined
    const extra = prefixes.find((one) => path.startsWith(`${one}/`) && isServed(path.slice(one.length)))
    if (extra !== undefined) return `leave ${extra} out of the client's base URL`
    const missing = prefixes.find((one) => isServed(one + path))
    if (missing !== undefined) return `add ${missing} to the client's base URL`
    return isServed(path.replaceAll(/\/{2,}/g, "/").replace(/\/$/, ""))
      ? "the path has a slash too many: look at the end of the client's base URL"
      : undefined
  }
