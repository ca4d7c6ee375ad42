/**
 * The allow-list: method and raw request target up to `?`, byte for byte. It is also the route table, so no second part
 * of the program reads the path in another way.
 */
export type Route =
  | { readonly _tag: "Inference"; readonly surface: "native" | "openai"; readonly kind: "chat" | "generate" }
  | { readonly _tag: "Embedding"; readonly endpoint: "embed" | "embeddings" | "openai" }
  | { readonly _tag: "Show" }
  | { readonly _tag: "List"; readonly list: "tags" | "models" | "version" }
  | { readonly _tag: "Ops"; readonly page: OpsPage }

export type OpsPage = "healthz" | "readyz" | "metrics" | "playground"

const inference = (surface: "native" | "openai", kind: "chat" | "generate"): Route => ({
  _tag: "Inference",
  surface,
  kind
})
const embedding = (endpoint: "embed" | "embeddings" | "openai"): Route => ({ _tag: "Embedding", endpoint })
const list = (list: "tags" | "models" | "version"): Route => ({ _tag: "List", list })
const ops = (page: OpsPage): Route => ({ _tag: "Ops", page })

const routes = new Map<string, Route>([
  ["POST /api/chat", inference("native", "chat")],
  ["POST /api/generate", inference("native", "generate")],
  ["POST /api/embed", embedding("embed")],
  ["POST /api/embeddings", embedding("embeddings")],
  ["POST /api/show", { _tag: "Show" }],
  ["POST /v1/completions", inference("openai", "generate")],
  ["POST /v1/chat/completions", inference("openai", "chat")],
  ["POST /v1/embeddings", embedding("openai")],
  ["GET /api/tags", list("tags")],
  ["GET /v1/models", list("models")],
  ["GET /api/version", list("version")],
  ["GET /healthz", ops("healthz")],
  ["GET /readyz", ops("readyz")],
  ["GET /metrics", ops("metrics")],
  ["GET /playground", ops("playground")]
])

/** Method and path of every route, for whoever documents them. */
export const endpoints: ReadonlyArray<string> = [...routes.keys()]

/** The raw target without its query; everything else about it is left as the client sent it. */
export const pathOf = (target: string): string => {
  const query = target.indexOf("?")
  return query === -1 ? target : target.slice(0, query)
}

/** `GET` routes answer `HEAD` too; every miss, a wrong method included, is the same refusal. */
export const routeOf = (method: string, target: string): Route | undefined =>
  routes.get(`${method === "HEAD" ? "GET" : method} ${pathOf(target)}`)
