/** What a route needs and what it counts against, in words for `docs/reference.md` and `openapi.json`. */
import type { Route } from "../../src/http/routes.ts"

export const needs: Record<Route["needs"], string> = {
  nothing: "no key",
  key: "any key",
  chat: "scope `chat`",
  embeddings: "scope `embeddings`"
}

export const counts: Record<Route["cost"], string> = {
  tokens: "requests and tokens",
  request: "requests",
  unmetered: "nothing",
  free: "nothing"
}
