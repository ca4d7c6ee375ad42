/**
 * `npm run openapi`: writes all files that are made from the code, `openapi.json`, the endpoints in docs/reference.md and
 * the tables of options, fields and types in docs/protocol.md. A test fails when a file differs.
 */
import { readFileSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { Schema } from "effect"
import { nativeOptions } from "../../src/http/dialect/sampling.ts"
import { routes } from "../../src/http/routes.ts"
import { exact, openapiText } from "./document.ts"
import { fieldRows } from "./fields.ts"
import { typeRows } from "./types.ts"
import { counts, needs, summaryOf } from "./operations.ts"

const root = path.resolve(import.meta.dirname, "../..")

const tableOf = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string =>
  [head, head.map(() => "---"), ...rows]
    .map((cells, i) => (i === 1 ? `|${cells.join("|")}|` : `| ${cells.join(" | ")} |`))
    .join("\n")

const withTable = (text: string, [name, table]: readonly [name: string, table: string]): string => {
  const mark = `<!-- ${name} -->\n`
  const [before, after] = [text.indexOf(mark) + mark.length, text.indexOf("\n\n", text.indexOf(mark))]
  if (before < mark.length || after === -1) throw new Error(`no table after ${mark}`)
  return text.slice(0, before) + table + text.slice(after)
}

/** The text of `file` with each table after the comment that names it. */
const withTables = (file: string, tables: { readonly [name: string]: string }) => {
  const at = path.join(root, file)
  return { file: at, text: Object.entries(tables).reduce(withTable, readFileSync(at, "utf8")) }
}

const endpoints = (): string =>
  tableOf(
    ["Method and path", "What it does", "Needs", "Counts"],
    routes.map((route) => [
      `\`${route.method} ${route.path}\``,
      summaryOf(route),
      needs[route.needs],
      counts[route.cost]
    ])
  )

/** The bounds of a number in JSON Schema, and as text. */
const Described = Schema.Struct({
  description: Schema.String,
  anyOf: Schema.Tuple([
    Schema.Struct({ minimum: Schema.Finite, maximum: Schema.Finite }),
    Schema.Struct({ type: Schema.Literal("null") })
  ])
})

/** Name, range and description of every option that is a number. */
export const ranges = () =>
  Object.entries(nativeOptions).flatMap(([name, option]) => {
    const { schema } = Schema.toJsonSchemaDocument(Schema.Struct({ option }))
    const described = Schema.decodeUnknownOption(
      Schema.Struct({ properties: Schema.Struct({ option: Described }) })
    )(schema)
    if (described._tag === "None") return []
    const { anyOf, description } = described.value.properties.option
    return [{ name, description, minimum: anyOf[0].minimum, maximum: anyOf[0].maximum }]
  })

const options = (): string =>
  tableOf(
    ["Option", "From", "To", "What it is"],
    ranges().map(({ description, maximum, minimum, name }) => [
      `\`${name}\``,
      exact(minimum),
      exact(maximum),
      description
    ])
  )

export const generated = () => [
  { file: path.join(root, "openapi.json"), text: openapiText() },
  withTables("docs/reference.md", { endpoints: endpoints() }),
  withTables("docs/protocol.md", {
    options: options(),
    fields: tableOf(["On", "In", "Field", "What becomes of it"], fieldRows()),
    types: tableOf(["On", "In", "Type", "What becomes of it"], typeRows())
  })
]

if (import.meta.main) for (const { file, text } of generated()) writeFileSync(file, text)
