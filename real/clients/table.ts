/** Tables of `docs/clients/README.md`, each between its two marks. */
import { cases } from "./catalogue.ts"
import type { Result } from "./runClients.ts"

const cell = (results: ReadonlyArray<Result>, name: string): string => {
  const found = results.find((result) => result.case === name)
  switch (found?.result) {
    case "works":
      return "yes"
    case "fails":
      return "**no**"
    default:
      return "–"
  }
}

export const tableOf = (results: ReadonlyArray<Result>): string => {
  const rows = Map.groupBy(results, ({ client, language, version }) => `${client} | ${language} | ${version}`)
  return [
    `| Client | For | Version | ${cases.join(" | ")} |`,
    `|---|---|---|${"---|".repeat(cases.length)}`,
    ...[...rows].map(([name, own]) => `| ${name} | ${cases.map((one) => cell(own, one)).join(" | ")} |`)
  ].join("\n")
}

/** `guide` with another table between the marks of that name. */
export const withTable = (guide: string, table: string, name = "matrix"): string => {
  const [begin, end] = [`<!-- ${name} -->`, `<!-- end of ${name} -->`]
  const [before, rest] = guide.split(begin)
  const [, after] = (rest ?? "").split(end)
  if (before === undefined || after === undefined)
    throw new Error(`docs/clients/README.md has no ${begin} … ${end}`)
  return `${before}${begin}\n\n${table}\n\n${end}${after}`
}
