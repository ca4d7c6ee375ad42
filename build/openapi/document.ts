/**
 * `openapi.json`, made of the route table, the schemas that decode the requests, the schemas of the answers and the table
 * of error responses. `npm run openapi` writes it.
 */
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import { version } from "../../src/version.ts"
import { type Route, routes } from "../../src/http/routes.ts"
import type { Surface } from "../../src/domain/Surface.ts"
import { messagesSurface } from "../../src/http/dialect/messages/surface.ts"
import { openai } from "../../src/http/surfaces.ts"
import { errorResponses, statuses } from "./errors.ts"
import {
  always,
  type Header,
  limits,
  listed,
  lowered,
  ofErrors,
  queued,
  ready,
  relaxed,
  windows
} from "./headers.ts"
import { counts, needs, type Operation, operationFor, summaryOf } from "./operations.ts"
import { componentSchemas, schemaOf } from "./schemas.ts"

const contentOf = (answers: Operation["answers"]): JsonObject =>
  Object.fromEntries(
    Object.entries(answers).map(([type, shapes]) => {
      const [only, ...others] = shapes.map(schemaOf)
      return [type, { schema: others.length === 0 ? (only ?? {}) : { anyOf: [only ?? {}, ...others] } }]
    })
  )

const headersOf = (...headers: ReadonlyArray<{ readonly [name: string]: Header }>): JsonObject =>
  Object.fromEntries(
    headers.flatMap((some) =>
      Object.keys(some).map((name) => [name, { $ref: `#/components/headers/${name}` }])
    )
  )

const isFree = ({ needs }: Route): boolean => needs === "nothing"

const answerHeaders = (route: Route): JsonObject => {
  if (isFree(route)) return headersOf(always, ...(route.path === "/readyz" ? [ready] : []))
  return headersOf(
    always,
    limits,
    ...(route.handler === "generate" ? [relaxed, lowered] : []),
    ...(route.cost === "tokens" ? [queued, windows] : []),
    ...(route.handler === "list" && route.list !== "version" ? [listed] : [])
  )
}

/** What the names of its errors begin with in the document. Most surfaces share theirs. */
const prefixOf = (surface: Surface): string => (surface === messagesSurface ? "Messages" : "")

/** The statuses of refusals. Malformed HTTP is a 400 on every route. */
const refusalsOf = (route: Route): ReadonlyArray<number> => {
  if (route.handler === "operations") {
    return [400, ...{ healthz: [], readyz: [503], playground: [403], metrics: [403] }[route.page]]
  }
  const always = [400, 401, 429, 500, 503]
  if (route.handler !== "list") return [...always, 403, 413, 502]
  return route.list === "model" ? [...always, 403] : always
}

const idParameter = { name: "id", in: "path", required: true, schema: { type: "string" } }

const operationOf = (route: Route): JsonObject => {
  const operation = operationFor(route)
  return {
    operationId: operation.id,
    summary: summaryOf(route),
    description: `Needs ${needs[route.needs]}; counts ${counts[route.cost]}.`,
    tags: [route.surface.name],
    ...(isFree(route) ? { security: [] } : {}),
    ...(route.path.includes("{id}") ? { parameters: [idParameter] } : {}),
    ...(operation.request === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: { "application/json": { schema: { $ref: `#/components/schemas/${operation.request}` } } }
          }
        }),
    responses: {
      "200": {
        description: operation.answered ?? "the answer",
        headers: answerHeaders(route),
        content: contentOf(operation.answers)
      },
      ...Object.fromEntries(
        refusalsOf(route).map((status) => [
          String(status),
          { $ref: `#/components/responses/${prefixOf(route.surface)}${statuses[status]?.name ?? ""}` }
        ])
      )
    }
  }
}

const exampleId = "01a1fca4-4f59-7db5-bd9d-1ef8280fed72"

const responseOf = (surface: Surface, status: number): JsonObject => {
  const errors = errorResponses.filter(
    (error, i) =>
      error.status === status && errorResponses.findIndex(({ message }) => message === error.message) === i
  )
  const own = errorResponses
    .filter((error) => error.status === status)
    .flatMap(({ headers }) => Object.keys(headers ?? {}))
    .map((name) => ofErrors[name])
  const byName = Object.fromEntries(own.filter((header) => header !== undefined))
  const unknownCaller = status === 401
  const examples: { [name: string]: Json } = {}
  for (const error of errors) {
    const name = error.type in examples ? `${error.type}_${Object.keys(examples).length}` : error.type
    examples[name] = { value: surface.errorBody(error, exampleId) }
  }
  return {
    description: statuses[status]?.description ?? "",
    headers: headersOf(
      always,
      ...(unknownCaller ? [] : [limits]),
      ...(status === 429 ? [queued] : []),
      byName
    ),
    content: {
      "application/json": {
        schema: { $ref: `#/components/schemas/${prefixOf(surface)}Error` },
        examples
      }
    }
  }
}

const pathsOf = (): JsonObject => {
  const paths: { [path: string]: JsonObject } = {}
  for (const route of routes) {
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: operationOf(route) }
  }
  return paths
}

export const document = (): JsonObject => ({
  openapi: "3.1.0",
  info: {
    title: "Tollgate",
    version,
    description:
      "An authenticating, rate-limiting, budget-enforcing gateway in front of one private model server. Every other path or method is 403. GET answers HEAD too. Fields of a request that are not listed are ignored. Bounds are those of the default settings.",
    license: { name: "MIT", identifier: "MIT" }
  },
  servers: [{ url: "http://127.0.0.1:8080" }],
  security: [{ key: [] }],
  tags: [
    { name: "native", description: "the model server's own API" },
    { name: "openai", description: "OpenAI's API" },
    {
      name: "messages",
      description:
        "Anthropic's Messages API, with `EXTRA_SURFACES=messages`. A key may be in `x-api-key` too. Answers have the request's id also as `request-id`."
    },
    { name: "operations", description: "health and metrics, without a key" }
  ],
  paths: pathsOf(),
  components: {
    securitySchemes: {
      key: { type: "http", scheme: "bearer", description: "tg_ and 41 letters or digits" }
    },
    headers: {
      ...always,
      ...limits,
      ...relaxed,
      ...lowered,
      ...queued,
      ...windows,
      ...listed,
      ...ready,
      ...Object.fromEntries(Object.values(ofErrors))
    },
    responses: Object.fromEntries(
      [openai, messagesSurface].flatMap((surface) =>
        Object.entries(statuses).map(([status, { name }]) => [
          prefixOf(surface) + name,
          responseOf(surface, Number(status))
        ])
      )
    ),
    schemas: componentSchemas()
  }
})

/** The file, byte for byte. */
export const openapiText = (): string => `${JSON.stringify(document(), null, 2)}\n`
