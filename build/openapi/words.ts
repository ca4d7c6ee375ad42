/** What a route does, needs and counts against, in words for `docs/reference.md` and `openapi.json`. */
import type { Route } from "../../src/http/routes.ts"

/** What a route does, and the setting without which it does not. */
export const summaryOf = ({ extra, summary }: Route): string =>
  extra === undefined ? summary : `${summary}; only with \`EXTRA_SURFACES=${extra}\``

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
