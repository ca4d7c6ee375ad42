/**
 * `node test/deploy/customResources.ts CRD RENDERED`: holds the objects of one kind in a rendered chart to the schema of their
 * CustomResourceDefinition. A field that the schema does not have is an error: a cluster would drop it without a word.
 */
import { readFileSync } from "node:fs"
import { Ajv } from "ajv"
import { Schema } from "effect"
import { parse, parseAllDocuments } from "yaml"

const Definition = Schema.Struct({
  spec: Schema.Struct({
    names: Schema.Struct({ kind: Schema.String }),
    versions: Schema.NonEmptyArray(
      Schema.Struct({
        name: Schema.String,
        schema: Schema.Struct({ openAPIV3Schema: Schema.Record(Schema.String, Schema.Json) })
      })
    )
  })
})
const isDefinition = Schema.is(Definition)

/** Kubernetes' word for a number or a text takes the place of `type`. Metadata is Kubernetes' own. */
const closed = (schema: Schema.Json, isMetadata = false): Schema.Json => {
  if (Array.isArray(schema)) return schema.map((part) => closed(part))
  if (typeof schema !== "object" || schema === null) return schema
  const parts = Object.fromEntries(
    Object.entries(schema)
      // JavaScript does not know Go's pattern for letters in any case.
      .filter(([name, part]) => !(name === "pattern" && String(part).includes("(?i)")))
      .map(([name, part]) => [name, closed(part, name === "metadata")])
  )
  return "properties" in parts && !isMetadata ? { additionalProperties: false, ...parts } : parts
}

const [definitionFile = "", renderedFile = ""] = process.argv.slice(2)
const definition: unknown = parse(readFileSync(definitionFile, "utf8"))
if (!isDefinition(definition)) throw new Error(`${definitionFile} is no CustomResourceDefinition`)
const { names, versions } = definition.spec
const [{ name, schema }] = versions
const validate = new Ajv({ strict: false, allErrors: true, validateFormats: false }).compile({
  ...Object(closed(schema.openAPIV3Schema))
})

const isOfKind = Schema.is(
  Schema.Struct({ kind: Schema.Literal(names.kind), apiVersion: Schema.String, spec: Schema.Json })
)
const objects = parseAllDocuments(readFileSync(renderedFile, "utf8"))
  .map((document): unknown => document.toJS())
  .filter(isOfKind)

const problems = objects.flatMap((object) => [
  ...(object.apiVersion.endsWith(`/${name}`) ? [] : [`apiVersion is ${object.apiVersion}, not ${name}`]),
  ...(validate(object)
    ? []
    : (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`))
])
// The schema itself is looked at too: a misspelt field must be found.
const misspelt = objects.map((object) => ({ ...object, spec: { ...Object(object.spec), selektor: {} } }))
if (objects.length === 0) problems.push(`no ${names.kind} in ${renderedFile}`)
if (misspelt.some((object) => validate(object))) problems.push("the schema takes any field")
for (const problem of problems) process.stderr.write(`${names.kind}: ${problem}\n`)
process.exitCode = problems.length === 0 ? 0 : 1
