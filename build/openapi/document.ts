/**
 * `openapi.json`, made of the route table, the schemas that decode the requests, the schemas of the answers and the table
 * of error responses. `npm run openapi` writes it.
 */
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import { isObject } from "../../src/domain/json.ts"
import { version } from "../../src/version.ts"
import { type Route, routes } from "../../src/http/routes.ts"
import type { Surface } from "../../src/domain/Surface.ts"
import { messagesSurface } from "../../src/http/dialect/messages/surface.ts"
import { openai } from "../../src/http/surfaces.ts"
import { errorResponses, statuses } from "./errors.ts"
import { headers } from "./headers.ts"
import { counts, needs, type Operation, operationFor, summaryOf } from "./operations.ts"
import { componentSchemas, schemaOf } from "./schemas.ts"

const contentOf = (answers: Operation["answers"]): JsonObject =>
  Object.fromEntries(
    Object.entries(answers).map(([type, shapes]) => {
      const schemas = shapes.map(schemaOf)
      return [type, { schema: schemas.length === 1 ? (schemas[0] ?? {}) : { anyOf: schemas } }]
    })
  )

const refsOf = (names: ReadonlyArray<string>): JsonObject =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]))

const headersOf = (...groups: ReadonlyArray<keyof typeof headers>): JsonObject =>
  refsOf(groups.flatMap((group) => Object.keys(headers[group])))

const isFree = ({ needs }: Route): boolean => needs === "nothing"

const answerHeaders = (route: Route): JsonObject => {
  if (isFree(route)) return route.path === "/readyz" ? headersOf("always", "ready") : headersOf("always")
  return {
    ...headersOf("always", "limits"),
    ...(route.handler === "generate" ? headersOf("generated") : {}),
    ...(route.cost === "tokens" ? headersOf("queued", "windows") : {}),
    ...(route.handler === "list" && !["version", "usage"].includes(route.list) ? headersOf("listed") : {})
  }
}

/** What the names of its errors begin with in the document. Most surfaces share theirs. */
const prefixOf = (surface: Surface): string => (surface === messagesSurface ? "Messages" : "")

/** The statuses of refusals. Malformed HTTP is a 400 on every route. */
const refusalsOf = (route: Route): ReadonlyArray<number> => {
  if (route.handler === "operations") {
    return [400, ...{ healthz: [], readyz: [503], playground: [403], metrics: [403] }[route.page]]
  }
  const always = [400, 401, 403, 429, 500, 503]
  return route.handler === "list" ? always : [...always, 413, 502]
}

const operationOf = (route: Route): JsonObject => {
  const operation = operationFor(route)
  return {
    operationId: operation.id,
    summary: summaryOf(route),
    description: `Needs ${needs[route.needs]}; counts ${counts[route.cost]}.`,
    tags: [route.surface.name],
    ...(isFree(route) ? { security: [] } : {}),
    ...(route.path.includes("{id}")
      ? { parameters: [{ name: "id", in: "path", required: true, schema: { type: "string" } }] }
      : {}),
    ...(operation.request === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: {
              "application/json": {
                schema: { $ref: `#/components/schemas/${operation.request}` },
                example: operation.example ?? {}
              }
            }
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
  const errors = errorResponses.filter((error) => error.status === status)
  const own = new Set(errors.flatMap(({ headers }) => Object.keys(headers ?? {})))
  const examples: { [name: string]: Json } = {}
  for (const error of new Map(errors.map((error) => [error.message, error])).values()) {
    const name = error.type in examples ? `${error.type}_${Object.keys(examples).length}` : error.type
    examples[name] = { value: surface.errorBody(error, exampleId) }
  }
  return {
    description: statuses[status]?.description ?? "",
    headers: {
      ...headersOf("always"),
      ...(status === 401 ? {} : headersOf("limits")),
      ...(status === 429 ? headersOf("queued") : {}),
      ...refsOf(Object.keys(headers.refusals).filter((name) => own.has(name.toLowerCase())))
    },
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
    headers: Object.fromEntries(Object.values(headers).flatMap((group) => Object.entries<JsonObject>(group))),
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

/** Generators of clients make an open map of an object that says what is the default, and a tuple of a list that says its first item. */
const shortened = (key: string, value: Json): Json | undefined => {
  if (key === "additionalProperties" && value === true) return undefined
  if (!isObject(value) || value["items"] === undefined) return value
  const { prefixItems: _first, ...list } = value
  return list
}

/** A number with all of its digits. */
export const exact = (number: number): string =>
  Number.isInteger(number) ? String(BigInt(number)) : String(number)

/** The file, byte for byte. */
export const openapiText = (): string =>
  `${JSON.stringify(document(), shortened, 2).replaceAll(/(?<=imum": )-?\d{17,}/g, (text) => exact(Number(text)))}\n`
