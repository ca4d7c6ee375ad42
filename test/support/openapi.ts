/** `openapi.json` as a client's tools see it: the file itself, and what its schemas say of a value. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js"
import { Schema } from "effect"

const root = path.resolve(import.meta.dirname, "../..")

export const openapiFile = readFileSync(path.join(root, "openapi.json"), "utf8")

const Body = Schema.Struct({ schema: Schema.JsonObject })
const Refs = Schema.Record(Schema.String, Schema.Struct({ $ref: Schema.String }))
const Response = Schema.Union([
  Schema.Struct({ $ref: Schema.String }),
  Schema.Struct({ headers: Refs, content: Schema.Record(Schema.String, Body) })
])
const Example = Schema.Struct({
  type: Schema.optionalKey(Schema.Literal("error")),
  error: Schema.Struct({ message: Schema.String, type: Schema.String, code: Schema.Int }),
  request_id: Schema.String
})

const Document = Schema.Struct({
  openapi: Schema.Literal("3.1.0"),
  info: Schema.Struct({ title: Schema.String, version: Schema.String }),
  paths: Schema.Record(
    Schema.String,
    Schema.Record(
      Schema.String,
      Schema.Struct({
        operationId: Schema.String,
        responses: Schema.Record(Schema.String, Response)
      })
    )
  ),
  components: Schema.Struct({
    headers: Schema.Record(Schema.String, Schema.Json),
    schemas: Schema.Record(Schema.String, Schema.Json),
    responses: Schema.Record(
      Schema.String,
      Schema.Struct({
        headers: Refs,
        content: Schema.Struct({
          "application/json": Schema.Struct({
            schema: Schema.JsonObject,
            examples: Schema.Record(Schema.String, Schema.Struct({ value: Example }))
          })
        })
      })
    )
  })
})

export const openapi = Schema.decodeSync(Schema.fromJsonString(Document))(openapiFile)

const ajv = new Ajv2020({
  strict: true,
  allowUnionTypes: true,
  strictRequired: false,
  strictTypes: false,
  validateFormats: false
})

const withDefinitions = (text: string) => text.replaceAll("#/components/schemas/", "tollgate#/$defs/")

ajv.addSchema({
  $id: "tollgate",
  $defs: JSON.parse(withDefinitions(JSON.stringify(openapi.components.schemas)))
})

/** What is wrong with a value by a schema of the document; "" when nothing is. */
export const objectionBy = (schema: Schema.JsonObject, value: unknown): string => {
  const text = withDefinitions(JSON.stringify(schema))
  const validate = validators.get(text) ?? ajv.compile(JSON.parse(text))
  validators.set(text, validate)
  return validate(value) ? "" : ajv.errorsText(validate.errors)
}

const validators = new Map<string, ValidateFunction>()

/** The same, by a schema's name. */
export const objection = (name: string, value: unknown): string =>
  objectionBy({ $ref: `#/components/schemas/${name}` }, value)

/** The response that the document has for a status, wherever it stands; undefined when it has none. */
export const responseOf = (
  method: string,
  path: string,
  status: number
):
  | { readonly headers: ReadonlyArray<string>; readonly content: Readonly<Record<string, Schema.JsonObject>> }
  | undefined => {
  const response = openapi.paths[path]?.[method.toLowerCase()]?.responses[String(status)]
  if (response === undefined) return undefined
  const found =
    "$ref" in response ? openapi.components.responses[response.$ref.split("/").at(-1) ?? ""] : response
  if (found === undefined) return undefined
  return {
    headers: Object.keys(found.headers).map((name) => name.toLowerCase()),
    content: Object.fromEntries(Object.entries(found.content).map(([type, { schema }]) => [type, schema]))
  }
}

/** Headers that the document leaves out: they are about the connection, the cache or the browser. */
const plumbing = new Set(["x-content-type-options", "x-accel-buffering", "x-frame-options"])
const isOurs = (name: string) =>
  (name.startsWith("x-") || name === "retry-after" || name === "www-authenticate") && !plumbing.has(name)

const piecesOf = (type: string, text: string): ReadonlyArray<unknown> => {
  if (type === "application/json") return [JSON.parse(text)]
  if (type === "application/x-ndjson") {
    return text
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line))
  }
  if (type !== "text/event-stream") return [text]
  return text
    .split("\n\n")
    .slice(0, -1)
    .map((event) => event.replace(/^(?:event: .*\n)?data: /, ""))
    .filter((data) => data !== "[DONE]")
    .map((data) => JSON.parse(data))
}

/** What the document does not say of a real answer: its status, its content type, a header, or its shape. */
export const undescribed = (
  method: string,
  path: string,
  answer: { readonly status: number; readonly headers: Headers; readonly text: string }
): ReadonlyArray<string> => {
  const response = responseOf(method, path, answer.status)
  if (response === undefined) return [`status ${answer.status}`]
  const type = answer.headers.get("content-type")?.split(";")[0] ?? ""
  const schema = response.content[type]
  const headers = [...answer.headers.keys()].filter(isOurs).filter((name) => !response.headers.includes(name))
  const unknown = headers.map((name) => `header ${name}`)
  // An answer to HEAD has no body.
  if (method === "HEAD") return unknown
  return [
    ...unknown,
    ...(schema === undefined
      ? [`content type ${type}`]
      : piecesOf(type, answer.text)
          .map((piece) => objectionBy(schema, piece))
          .filter((text) => text !== ""))
  ]
}

const specification = new Ajv2020({ strict: false, validateFormats: false })

/** What is wrong with the document by OpenAPI's own schema of documents; "" when nothing is. */
export const invalidity = (): string => {
  const schema = readFileSync(path.join(import.meta.dirname, "openapi-3.1.schema.json"), "utf8")
  const validate = specification.compile(JSON.parse(schema))
  return validate(JSON.parse(openapiFile)) ? "" : specification.errorsText(validate.errors)
}
