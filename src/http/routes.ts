/**
 * The route table, which is also the allow-list: a request is served only if its method and its raw target up to `?`
 * are in it, byte for byte. No other code reads the path. Dispatch, tests, `openapi.json` and the
 * table in docs/reference.md are made from these rows or compared with them.
 */
import { Result } from "effect"
import type { Embeddings } from "../domain/Frame.ts"
import type { Scope } from "../domain/Caller.ts"
import type { ErrorBodyForm, ExtraSurface, ServedRoute } from "../domain/Surface.ts"
import { type JsonObject, scopeFor } from "../domain/Inference.ts"
import type { Dialect, ObjectDialect } from "./dialect/Dialect.ts"
import {
  nativeChat,
  nativeEmbed,
  nativeEmbeddings,
  nativeGenerate,
  nativeShow
} from "./dialect/native/dialect.ts"
import { openaiChat, openaiCompletions, openaiEmbeddings } from "./dialect/openai/dialect.ts"
import { responses } from "./dialect/responses/dialect.ts"
import { messages, messagesCount } from "./dialect/messages/dialect.ts"
import { messagesSurface } from "./dialect/messages/surface.ts"
import { native, openai, operations } from "./surfaces.ts"

/** The handler of a route (`app.ts`), with what it needs to know of the route. */
type Handled =
  | { readonly handler: "generate"; readonly dialect: Dialect }
  | { readonly handler: "embed"; readonly dialect: ObjectDialect<Embeddings> }
  | { readonly handler: "count"; readonly dialect: ObjectDialect<void> }
  | { readonly handler: "show"; readonly dialect: ObjectDialect<JsonObject> }
  | { readonly handler: "list"; readonly list: "tags" | "models" | "model" | "version" }
  | { readonly handler: "operations"; readonly page: "healthz" | "readyz" | "metrics" | "playground" }

export type Route = Handled &
  ServedRoute & {
    /** A `GET` route answers `HEAD` too. */
    readonly method: "GET" | "HEAD" | "POST"
    /** `{id}` at its end is any text that is not empty; `idOf` reads it. */
    readonly path: `/${string}`
    /** the name in `EXTRA_SURFACES` that switches the route on; without it, the route is always on */
    readonly extra?: ExtraSurface
    /** Who may call it: anyone, the owner of any valid key, or the owner of a key with this scope. */
    readonly needs: "nothing" | "key" | Scope
    /**
     * What a request counts against: the key's limits and budgets (`tokens`), its requests per minute only (`request`),
     * the bound on unmetered work (`unmetered`), or nothing (`free`).
     */
    readonly cost: "tokens" | "request" | "unmetered" | "free"
    readonly summary: string
  }

export const routes = [
  {
    method: "POST",
    path: "/api/chat",
    surface: native,
    needs: scopeFor.chat,
    cost: "tokens",
    handler: "generate",
    dialect: nativeChat,
    summary: "the backend's chat, NDJSON stream (default) or one object"
  },
  {
    method: "POST",
    path: "/api/generate",
    surface: native,
    needs: scopeFor.generate,
    cost: "tokens",
    handler: "generate",
    dialect: nativeGenerate,
    summary: "the backend's generate, NDJSON stream (default) or one object"
  },
  {
    method: "POST",
    path: "/api/embed",
    surface: native,
    needs: scopeFor.embed,
    cost: "tokens",
    handler: "embed",
    dialect: nativeEmbed,
    summary: "the backend's embeddings"
  },
  {
    method: "POST",
    path: "/api/embeddings",
    surface: native,
    needs: scopeFor.embeddings,
    cost: "tokens",
    handler: "embed",
    dialect: nativeEmbeddings,
    summary: "the backend's older embeddings, one text at a time"
  },
  {
    method: "POST",
    path: "/api/show",
    surface: native,
    needs: scopeFor.show,
    cost: "request",
    handler: "show",
    dialect: nativeShow,
    summary: "what is known of a model, without system prompt, template and modelfile"
  },
  {
    method: "GET",
    path: "/api/tags",
    surface: native,
    needs: "key",
    cost: "unmetered",
    handler: "list",
    list: "tags",
    summary: "the models this key may use"
  },
  {
    method: "GET",
    path: "/api/version",
    surface: native,
    needs: "key",
    cost: "unmetered",
    handler: "list",
    list: "version",
    summary: "the gateway's version"
  },
  {
    method: "POST",
    path: "/v1/chat/completions",
    surface: openai,
    needs: scopeFor.chat,
    cost: "tokens",
    handler: "generate",
    dialect: openaiChat,
    summary: "OpenAI chat, one object (default) or server-sent events"
  },
  {
    method: "POST",
    path: "/v1/completions",
    surface: openai,
    needs: scopeFor.generate,
    cost: "tokens",
    handler: "generate",
    dialect: openaiCompletions,
    summary: "OpenAI completions, one object (default) or server-sent events"
  },
  {
    method: "POST",
    path: "/v1/embeddings",
    surface: openai,
    needs: scopeFor.embed,
    cost: "tokens",
    handler: "embed",
    dialect: openaiEmbeddings,
    summary: "OpenAI embeddings, as numbers or base64"
  },
  {
    method: "POST",
    path: "/v1/responses",
    surface: openai,
    extra: "responses",
    needs: scopeFor.chat,
    cost: "tokens",
    handler: "generate",
    dialect: responses,
    summary: "OpenAI Responses, one object (default) or server-sent events"
  },
  {
    method: "GET",
    path: "/v1/models",
    surface: openai,
    needs: "key",
    cost: "unmetered",
    handler: "list",
    list: "models",
    summary: "the models this key may use"
  },
  {
    method: "GET",
    path: "/v1/models/{id}",
    surface: openai,
    extra: "responses",
    needs: "key",
    cost: "unmetered",
    handler: "list",
    list: "model",
    summary: "one of the models this key may use"
  },
  {
    method: "POST",
    path: "/v1/messages",
    surface: messagesSurface,
    extra: "messages",
    needs: scopeFor.chat,
    cost: "tokens",
    handler: "generate",
    dialect: messages,
    summary: "Anthropic messages, one object (default) or server-sent events"
  },
  {
    method: "POST",
    path: "/v1/messages/count_tokens",
    surface: messagesSurface,
    extra: "messages",
    needs: scopeFor.count,
    cost: "request",
    handler: "count",
    dialect: messagesCount,
    summary: "an estimate of the tokens of a prompt"
  },
  {
    method: "HEAD",
    path: "/api/hello",
    surface: messagesSurface,
    extra: "messages",
    needs: "nothing",
    cost: "free",
    handler: "operations",
    page: "healthz",
    summary: "liveness, as Claude Code asks for it"
  },
  {
    method: "GET",
    path: "/healthz",
    surface: operations,
    needs: "nothing",
    cost: "free",
    handler: "operations",
    page: "healthz",
    summary: "liveness, without I/O"
  },
  {
    method: "GET",
    path: "/readyz",
    surface: operations,
    needs: "nothing",
    cost: "free",
    handler: "operations",
    page: "readyz",
    summary: "200 when database and backend answer and the cache store takes writes, else 503"
  },
  {
    method: "GET",
    path: "/playground",
    surface: operations,
    needs: "nothing",
    cost: "free",
    handler: "operations",
    page: "playground",
    summary: "the test page, only when `PLAYGROUND_ENABLED`"
  },
  {
    method: "GET",
    path: "/metrics",
    surface: operations,
    needs: "nothing",
    cost: "free",
    handler: "operations",
    page: "metrics",
    summary: "Prometheus text, for a scraper on this machine only"
  }
] as const satisfies ReadonlyArray<Route>

/** The raw target without its query, otherwise unchanged. */
export const pathOf = (target: string): string => {
  const query = target.indexOf("?")
  return query === -1 ? target : target.slice(0, query)
}

const parameter = "{id}"
/** What a path with a parameter begins with; undefined for a path without one. */
const prefixOf = ({ path }: ServedRoute): string | undefined =>
  path.endsWith(parameter) ? path.slice(0, -parameter.length) : undefined

/** The text in the place of `{id}`; undefined when it is badly encoded. */
export const idOf = (route: ServedRoute, target: string): string | undefined =>
  Result.getOrUndefined(Result.try(() => decodeURIComponent(pathOf(target).slice(prefixOf(route)?.length))))

/**
 * Finds the route of a request; undefined for every other path or method, which all get the same 403. `extras` are the surfaces
 * that are switched on: the routes of the others are in no list.
 */
export const makeRouteOf = (
  extras: ReadonlySet<ExtraSurface>,
  errorBodies: ErrorBodyForm = "specification"
) => {
  const told = (route: Route): Route => {
    const errorBody = errorBodies === "clients" ? route.surface.clientErrorBody : undefined
    return errorBody === undefined ? route : { ...route, surface: { ...route.surface, errorBody } }
  }
  const all: ReadonlyArray<Route> = routes
  const listed = all.map(told)
  const served = listed.filter(({ extra }) => extra === undefined || extras.has(extra))
  const byTarget = new Map(served.map((route) => [`${route.method} ${route.path}`, route]))
  const prefixed = served.flatMap((route) => {
    const prefix = prefixOf(route)
    return prefix === undefined ? [] : [{ route, start: `${route.method} ${prefix}` }]
  })
  const find = (asked: string): Route | undefined =>
    byTarget.get(asked) ??
    prefixed.find(({ start }) => asked.length > start.length && asked.startsWith(start))?.route
  return (method: string, target: string): Route | undefined => {
    const path = pathOf(target)
    return find(`${method} ${path}`) ?? (method === "HEAD" ? find(`GET ${path}`) : undefined)
  }
}
