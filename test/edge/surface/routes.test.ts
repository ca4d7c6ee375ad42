/** Each row of the route table, held to the gateway itself: who may call the route, and what a served request costs. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { type Scope, scopes } from "../../../src/domain/Caller.ts"
import { extraSurfaces } from "../../../src/domain/Surface.ts"
import { type Route, routes } from "../../../src/http/routes.ts"
import { Registry } from "../../../src/admin/Registry.ts"
import { call, layerGateway, newKey } from "../../support/Gateway.ts"
import { undescribed } from "../../support/openapi.ts"
import { inWorld } from "../../support/testWith.ts"

/** A body that the route serves; a new route with a body has to be added here. */
const bodies = {
  "/api/chat": { model: "m", messages: [{ role: "user", content: "Hello" }] },
  "/api/generate": { model: "m", prompt: "Hello" },
  "/api/embed": { model: "embedder", input: ["Hello"] },
  "/api/embeddings": { model: "embedder", prompt: "Hello" },
  "/api/show": { model: "m" },
  "/v1/chat/completions": { model: "m", messages: [{ role: "user", content: "Hello" }] },
  "/v1/completions": { model: "m", prompt: "Hello" },
  "/v1/embeddings": { model: "embedder", input: "Hello" },
  "/v1/responses": { model: "m", input: "Hello" },
  "/v1/messages": { model: "m", max_tokens: 16, messages: [{ role: "user", content: "Hello" }] },
  "/v1/messages/count_tokens": { model: "m", messages: [{ role: "user", content: "Hello" }] }
} satisfies Record<Extract<(typeof routes)[number], { readonly method: "POST" }>["path"], unknown>

const bodyOf = (route: Route): unknown => new Map<string, unknown>(Object.entries(bodies)).get(route.path)

const ask = (route: Route, secret?: string, body = bodyOf(route)) =>
  call(route.path.replace("{id}", "m"), {
    method: route.method,
    ...(secret === undefined ? {} : { secret }),
    ...(route.method === "POST" ? { body } : {})
  })

const other: Record<Scope, Scope> = { chat: "embeddings", embeddings: "chat" }

const isScope = (needs: Route["needs"]): needs is Scope => scopes.some((scope) => scope === needs)

/** What is left of a key's limits, by the headers of an answer. */
const left = ({ headers }: { readonly headers: Headers }) => ({
  requests: Number(headers.get("x-ratelimit-remaining-requests")),
  tokens: Number(headers.get("x-ratelimit-remaining-tokens"))
})

/** As a stream, and as one object, where the route has both. */
const variants = (route: Route): ReadonlyArray<unknown> => {
  const body = bodyOf(route)
  return route.handler === "generate" && typeof body === "object"
    ? [true, false].map((stream) => ({ ...body, stream }))
    : [body]
}

const everything = {
  PLAYGROUND_ENABLED: "true",
  BACKEND_MAX_CONCURRENT: "4",
  EXTRA_SURFACES: extraSurfaces.join(",")
}

inWorld(layerGateway(everything))("the route table", (test) => {
  for (const route of routes) {
    const name = `${route.method} ${route.path}`

    test(`when ${name} is called, then it needs ${route.needs}`, function* () {
      const { status } = yield* ask(route)
      assert.strictEqual(status, route.needs === "nothing" ? 200 : 401)
      if (isScope(route.needs)) {
        const without = yield* newKey({ scopes: [other[route.needs]] })
        assert.strictEqual((yield* ask(route, without.secret)).status, 403)
        const only = yield* newKey({ scopes: [route.needs] })
        assert.strictEqual((yield* ask(route, only.secret)).status, 200)
      } else {
        for (const scope of scopes) {
          const { secret } = yield* newKey({ scopes: [scope] })
          assert.strictEqual((yield* ask(route, secret)).status, 200)
        }
      }
    })

    test(`when ${name} is served, then it costs what its row says: ${route.cost}`, function* () {
      const { secret } = yield* newKey({ rpm: 5, tpm: 1000 })
      assert.strictEqual((yield* ask(route, secret)).status, 200)
      const { requests, tokens } = left(yield* call("/api/version", { secret }))
      assert.strictEqual(requests, route.cost === "tokens" || route.cost === "request" ? 4 : 5)
      if (route.cost === "tokens") assert.isBelow(tokens, 1000)
      else assert.strictEqual(tokens, 1000)
    })

    test(`when ${name} answers, then openapi.json describes its status, headers, type and shape`, function* () {
      const registry = yield* Registry
      const { prefix, secret } = yield* newKey({ rpm: 5 })
      yield* registry.changeKey(prefix, { budgetDaily: 1_000_000 })
      for (const body of variants(route)) {
        const answer = yield* ask(route, secret, body)
        assert.strictEqual(answer.status, 200)
        assert.deepStrictEqual(undescribed(route.method, route.path, answer), [])
      }
      if (route.needs === "nothing") return
      const refused = [yield* ask(route), ...(route.method === "POST" ? [yield* ask(route, secret, {})] : [])]
      const limited = yield* Effect.forEach([1, 2, 3, 4, 5, 6], () => ask(route, secret))
      for (const answer of [...refused, ...limited]) {
        assert.deepStrictEqual(undescribed(route.method, route.path, answer), [])
      }
      const statuses = [...refused, ...limited].map(({ status }) => status)
      assert.includeMembers(statuses, route.cost === "unmetered" ? [401] : [400, 401, 429])
    })
  }
})
