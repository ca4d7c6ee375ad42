/**
 * The route table, which is also the allow-list: a request is served only if its method and its raw target up to `?`
 * are in it, byte for byte. No other code reads the path. Dispatch, tests, `openapi.json` and the
 * table in docs/reference.md are made from these rows or compared with them.
 */
import { Result } from "effect"
import type { Embeddings } from "../domain/Frame.ts"
import type { Scope } from "../domain/Caller.ts"
import type { ErrorBodyForm, ExtraSurface, ServedRoute, Surface } from "../domain/Surface.ts"
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
  | { readonly handler: "list"; readonly list: "tags" | "models" | "model" | "version" | "usage" }
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

type Path = Route["path"]

/** What the routes of each handler have. */
const handlers = {
  generate: { handler: "generate", method: "POST", needs: scopeFor.chat, cost: "tokens" },
  embed: { handler: "embed", method: "POST", needs: scopeFor.embed, cost: "tokens" },
  count: { handler: "count", method: "POST", needs: scopeFor.count, cost: "request" },
  show: { handler: "show", method: "POST", needs: scopeFor.show, cost: "request" },
  list: { handler: "list", method: "GET", needs: "key", cost: "unmetered" },
  operations: { handler: "operations", method: "GET", needs: "nothing", cost: "free" }
} as const

const generate = <const P extends Path>(path: P, dialect: Dialect, summary: string) =>
  ({ ...handlers.generate, path, dialect, summary }) as const
const embed = <const P extends Path>(path: P, dialect: ObjectDialect<Embeddings>, summary: string) =>
  ({ ...handlers.embed, path, dialect, summary }) as const
const lists = <const P extends Path, const L>(path: P, list: L, summary: string) =>
  ({ ...handlers.list, path, list, summary }) as const
const shows = <const P extends Path, const N>(path: P, page: N, summary: string) =>
  ({ ...handlers.operations, path, page, summary }) as const

/** The routes of a surface. `extra`: the name that switches them on. */
const of = <const R>(surface: Surface, rows: ReadonlyArray<R>, extra?: ExtraSurface) =>
  rows.map((row) => ({ ...row, surface, ...(extra === undefined ? {} : { extra }) }))

export const routes = [
  ...of(native, [
    generate("/api/chat", nativeChat, "the backend's chat, NDJSON stream (default) or one object"),
    generate(
      "/api/generate",
      nativeGenerate,
      "the backend's generate, NDJSON stream (default) or one object"
    ),
    embed("/api/embed", nativeEmbed, "the backend's embeddings"),
    embed("/api/embeddings", nativeEmbeddings, "the backend's older embeddings, one text at a time"),
    {
      ...handlers.show,
      path: "/api/show",
      dialect: nativeShow,
      summary: "what is known of a model, without system prompt, template and modelfile"
    },
    lists("/api/tags", "tags", "the models this key may use"),
    lists("/api/version", "version", "the gateway's version"),
    lists("/api/usage", "usage", "what this key used, by day and model, only when `PLAYGROUND_ENABLED`")
  ]),
  ...of(openai, [
    generate("/v1/chat/completions", openaiChat, "OpenAI chat, one object (default) or server-sent events"),
    generate(
      "/v1/completions",
      openaiCompletions,
      "OpenAI completions, one object (default) or server-sent events"
    ),
    embed("/v1/embeddings", openaiEmbeddings, "OpenAI embeddings, as numbers or base64")
  ]),
  ...of(
    openai,
    [generate("/v1/responses", responses, "OpenAI Responses, one object (default) or server-sent events")],
    "responses"
  ),
  ...of(openai, [lists("/v1/models", "models", "the models this key may use")]),
  ...of(openai, [lists("/v1/models/{id}", "model", "one of the models this key may use")], "responses"),
  ...of(
    messagesSurface,
    [
      generate("/v1/messages", messages, "Anthropic messages, one object (default) or server-sent events"),
      {
        ...handlers.count,
        path: "/v1/messages/count_tokens",
        dialect: messagesCount,
        summary: "an estimate of the tokens of a prompt"
      },
      { ...shows("/api/hello", "healthz", "liveness, as Claude Code asks for it"), method: "HEAD" }
    ],
    "messages"
  ),
  ...of(operations, [
    shows("/healthz", "healthz", "liveness, without I/O"),
    shows(
      "/readyz",
      "readyz",
      "200 when database and backend answer and the cache store takes writes, else 503"
    ),
    shows("/playground", "playground", "the test page, only when `PLAYGROUND_ENABLED`"),
    shows("/metrics", "metrics", "Prometheus text, for a scraper on this machine only")
  ])
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
