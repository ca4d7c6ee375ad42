/** `npm run clients` writes `docs/clients`: a page for each client, and their table in its README. */
import { readFileSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { type Client, type Facts, surfaces } from "../cli/connect/Client.ts"
import { clients } from "../cli/connect/clients.ts"
import { commandOf, filesOf, freshText } from "../cli/connect/texts.ts"

const folder = path.resolve(import.meta.dirname, "../docs/clients")

const example: Facts = {
  url: "https://gateway.example",
  model: "qwen3-coder:30b",
  window: 65_536,
  output: 8192
}

const languageOf = (file: string): string => path.extname(file).replace(".", "").replace("mjs", "js")

const fenced = (language: string, text: string): string => `\`\`\`${language}\n${text.trimEnd()}\n\`\`\``

const needs = ({ surface, title }: Client): string =>
  surface === "chat"
    ? `${title} uses \`${surfaces.chat}\`, which every gateway serves.`
    : `${title} uses \`${surfaces[surface]}\`. The gateway serves it only with \`EXTRA_SURFACES=${surface}\` (several: a comma list); otherwise it is a 403.`

const firstRequest = ({ firstRequest }: Client): string =>
  firstRequest === undefined
    ? ""
    : ` Its first request has some ${firstRequest.toLocaleString("en-US")} tokens, which the window must hold.`

const tried = ({ title, tried }: Client): string =>
  tried === undefined
    ? `${title} was not run with these settings: they are its documented form.`
    : `Version ${tried.version} was run with these settings: it ${tried.did}.`

const pageOf = (client: Client): string =>
  [
    `# ${client.title}`,
    `${needs(client)} ${tried(client)}${firstRequest(client)}`,
    `\`tollgate connect ${client.name}\` prints what stands here for your gateway and model. With \`--write\` it shows what changes in your files, and writes them; a file that was there stays beside it as \`….before-tollgate\`. The key comes from \`--key-file\` or from \`TOLLGATE_KEY\`.`,
    ...filesOf(client, example, "~/.tollgate-key").flatMap((file) => [
      `\`${file.path}\`:`,
      fenced(languageOf(file.path), freshText(file))
    ]),
    "Then:",
    fenced("text", commandOf(client, example)),
    ...(client.notes.length === 0 ? [] : [client.notes.map((note) => `- ${note}`).join("\n")])
  ].join("\n\n") + "\n"

const [begin, end] = ["<!-- connect -->\n", "<!-- end of connect -->"]

const table = [
  "| Client | `tollgate connect` | Uses | Version that was run |",
  "|---|---|---|---|",
  ...clients.map(
    ({ name, surface, title, tried }) =>
      `| [${title}](${name}.md) | \`${name}\` | \`${surfaces[surface]}\` | ${tried?.version ?? "–"} |`
  )
].join("\n")

/** The README with the table of now. */
const withTable = (readme: string): string => {
  const [before = "", rest = ""] = readme.split(begin)
  return `${before}${begin}\n${table}\n\n${end}${rest.split(end)[1] ?? ""}`
}

/** Each file with what it must have. */
export const pages = (): ReadonlyArray<readonly [file: string, text: string]> => [
  ...clients.map((client) => [path.join(folder, `${client.name}.md`), pageOf(client)] as const),
  [path.join(folder, "README.md"), withTable(readFileSync(path.join(folder, "README.md"), "utf8"))]
]

if (import.meta.main) for (const [file, text] of pages()) writeFileSync(file, text)
