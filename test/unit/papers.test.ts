/** What the papers say exists, exists: commands, flags, npm scripts, files, settings and alerts. */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"
import { TestConsole } from "effect/testing"
import { SqlClient } from "effect/sql"
import { runCommandLine } from "../../cli/program.ts"
import { backgroundTasks } from "../../src/observability/Metrics.ts"
import { Backend } from "../../src/backend/Backend.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { Records } from "../../src/admin/records/Records.ts"
import { Replicas } from "../../src/replicas/Replicas.ts"
import { table, variablesOf } from "../../src/Settings.ts"

const root = path.resolve(import.meta.dirname, "../..")
const read = (file: string) => readFileSync(path.join(root, file), "utf8")
const docs = readdirSync(path.join(root, "docs"), { recursive: true, encoding: "utf8" })
  .filter((name) => path.extname(name) !== "")
  .map((name) => path.posix.join("docs", name))
const papers = ["README.md", "CONTRIBUTING.md", "Dockerfile", "docker-compose.yml", ...docs].map((file) => ({
  file,
  text: read(file)
}))

const all = (pattern: RegExp) =>
  papers.flatMap(({ file, text }) => [...text.matchAll(pattern)].map((match) => ({ file, match })))

it("when a setting is in the code, then the table of the reference has the same row", () => {
  const [, after = ""] = read("docs/reference.md").split("<!-- settings")
  const rows = after.slice(after.indexOf("| Setting")).split("\n\n")[0]?.split("\n").slice(2)
  assert.deepStrictEqual(
    rows,
    Object.values(table).map(({ expected, name, shown }) => `| \`${name}\` | ${shown} | ${expected} |`)
  )
})

it("when a document names an npm script, then it exists", () => {
  const { scripts } = Schema.decodeSync(
    Schema.fromJsonString(Schema.Struct({ scripts: Schema.Record(Schema.String, Schema.String) }))
  )(read("package.json"))
  const named = all(/\bnpm (?:run (?:--silent |-s )?([\w:-]+)|(start|test)\b)/g)
  assert.isAbove(named.length, 5)
  assert.deepStrictEqual(
    named
      .filter(({ match }) => !((match[1] ?? match[2] ?? "") in scripts))
      .map(({ file, match }) => [file, match[0]]),
    []
  )
})

it("when a document names a file, then it exists", () => {
  const named = [
    ...all(/`((?:src|build|playground|cli|test|lab|deploy|docs|bench|migrations)\/[\w./-]+)`/g),
    // The story of a request in CONTRIBUTING.md.
    ...all(/\b(src\/[\w./-]+\.ts)\b/g)
  ]
  assert.isAbove(named.length, 15)
  const links = papers.flatMap(({ file, text }) =>
    [...text.matchAll(/\]\(([\w./-]+)(?:#[\w-]+)?\)/g)].map((match) => ({
      file,
      to: path.join(path.dirname(file), match[1] ?? "")
    }))
  )
  const missing = [...named.map(({ file, match }) => ({ file, to: match[1] ?? "" })), ...links].filter(
    ({ to }) => !existsSync(path.join(root, to))
  )
  assert.deepStrictEqual(missing, [])
})

/** Every text file of the project, but the lock files. */
const sources = [
  "README.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
  "Dockerfile",
  "docker-compose.yml",
  ...["src", "build", "playground", "cli", "test", "lab", "bench", "migrations", "deploy", "docs"].flatMap(
    (folder) =>
      readdirSync(path.join(root, folder), { recursive: true, encoding: "utf8" })
        .filter((name) => /\.(?:ts|js|md|lua|sql|yaml|cfg|sh|py|mjs|html|css)$/.test(name))
        .filter((name) => !name.includes("node_modules"))
        .map((name) => path.join(folder, name))
  )
].map((file) => ({ file, text: read(file) }))

/** The headings of a paper, and the first cells of its tables. */
const parts = (file: string): ReadonlySet<string> => {
  const text = read(file)
  return new Set([
    ...[...text.matchAll(/^#+ (.+)$/gm)].map((match) => match[1] ?? ""),
    ...[...text.matchAll(/^\| ([A-Z]\d{2}) \|/gm)].map((match) => match[1] ?? "")
  ])
}

it("when code or docs refer to a paper, then it is in the repository and has that heading or row", () => {
  const missing = sources.flatMap(({ file, text }) =>
    [
      // A section number belongs to a paper with numbered sections: no paper of this repository has them.
      ...(text.match(/.*\u00a7.*/g) ?? []),
      ...(
        text.match(
          /\b(?:spec|contract|ollama-wire|effect4|spikes|house|design)\.md\b|\bollama-wire\b|\bhardening [A-Z\d]/g
        ) ?? []
      ).filter(() => file !== "test/unit/papers.test.ts"),
      // Line ends within a comment are spaces.
      ...[
        ...text
          .replaceAll(/\n\s*(?:\*|\/\/)? ?/g, " ")
          .matchAll(
            /\b(docs\/[\w-]+\.md|bench\/[\w-]+\.md|README\.md)(?:,? ((?:(?:"[\w ,]+"|[A-Z]\d{2}\b)(?:,| to| and)? ?)+))?/g
          )
      ].flatMap(([whole, paper = "", named = ""]) => {
        if (!existsSync(path.join(root, paper))) return [whole]
        const known = parts(paper)
        return [...named.matchAll(/"([\w ,]+)"|([A-Z]\d{2})/g)]
          .filter(([, heading, row]) => !known.has(heading ?? row ?? ""))
          .map(([name]) => `${paper} ${name}`)
      })
    ].map((reference) => `${file}: ${reference}`)
  )
  assert.deepStrictEqual(missing, [])
})

it("when a document names a setting, then it exists", () => {
  const settings = new Set(Object.values(table).flatMap(variablesOf))
  const foreign = new Set([
    "NODE_ENV",
    "POSTGRES_PASSWORD",
    "REDIS_PASSWORD",
    "TEST_REDIS_URL",
    "OLLAMA_API_BASE",
    "OLLAMA_API_KEY",
    "OLLAMA_BIN",
    "OLLAMA_URL",
    "ENABLE_FORWARD_USER_INFO_HEADERS",
    "OLLAMA_NUM_PARALLEL",
    "OLLAMA_CONTEXT_LENGTH",
    "OLLAMA_MAX_LOADED_MODELS",
    "OLLAMA_WITHOUT_GPU",
    "COMPOSE_PROFILES",
    "MALLOC_ARENA_MAX",
    "NODE_OPTIONS",
    "NODE_EXTRA_CA_CERTS"
  ])
  // Codes of Node and OpenSSL.
  const errors = new Set(
    [...read("src/infra/tls.ts").matchAll(/^ {2}([A-Z_]+[A-Z\d_]*):/gm)].map((match) => match[1])
  )
  const unknown = all(/`([A-Z]{2,}_[A-Z_]+)(?:=[^`]*)?`/g).filter(
    ({ match: [, name = ""] }) =>
      !settings.has(name) && !foreign.has(name) && !errors.has(name) && name !== "DEFAULT_"
  )
  assert.deepStrictEqual(
    unknown.map(({ file, match }) => [file, match[0]]),
    []
  )
})

it("when there is an alert, then the operations guide describes it, and no other", () => {
  const alerts = [...read("deploy/prometheus/alerts.yaml").matchAll(/- alert: (\w+)/g)].map(
    (match) => match[1]
  )
  assert.isAbove(alerts.length, 5)
  const [, after = ""] = read("docs/operations.md").split(/<!-- (?:alerts|tasks) -->/)
  const described = [...after.matchAll(/^\| `(\w+)` \|/gm)].map((match) => match[1])
  assert.deepStrictEqual(described.toSorted(), alerts.toSorted())
})

it("when there is a background task, then the operations guide describes it, and no other", () => {
  const [, , after = ""] = read("docs/operations.md").split(/<!-- (?:alerts|tasks) -->/)
  const [table = ""] = after.split("\n## ")
  const described = [...table.matchAll(/^\| (`[^|]*) \|/gm)].flatMap(
    ([, tasks = ""]) => tasks.match(/\w+/g) ?? []
  )
  assert.deepStrictEqual(described.toSorted(), backgroundTasks.toSorted())
})

it("when code logs a warning or an error, then its message is fixed and is in the operations guide", () => {
  const calls = sources
    .filter(({ file }) => /^(?:src|cli)\/.*\.ts$/.test(file))
    .flatMap(({ file, text }) =>
      [...text.matchAll(/Effect\.log(?:Warning|Error|Fatal)\(\s*(.{1,60})/g)].map((match) => ({
        file,
        argument: match[1] ?? ""
      }))
    )
  const messages = calls.map(({ argument }) => /^"([^"]+)"/.exec(argument)?.[1])
  assert.deepStrictEqual(
    calls.filter((_, i) => messages[i] === undefined),
    [],
    "messages that are not fixed texts"
  )
  const [, after = ""] = read("docs/operations.md").split("<!-- log events -->\n")
  const [rows = ""] = after.split("\n\n")
  const described = [...rows.matchAll(/^\| `([^`]+)` \|/gm)].map((match) => match[1])
  const logged = messages.filter((message) => message !== undefined)
  assert.deepStrictEqual(described.slice(1).toSorted(), [...new Set(logged)].toSorted())
})

const nothing = Layer.mergeAll(
  Layer.mock(Registry, {}),
  Layer.mock(Backend, {}),
  Layer.mock(Records, {}),
  Layer.mock(Replicas, {}),
  Layer.succeed(SqlClient.SqlClient, SqlClient.SqlClient.of(Object.create(null)))
)

const help = Effect.fnUntraced(function* (...words: ReadonlyArray<string>) {
  const before = (yield* TestConsole.logLines).length
  const nothingChecked = Effect.succeed([])
  const needs = {
    registry: nothing,
    records: nothing,
    database: nothing,
    backend: nothing,
    replicas: nothing,
    checks: {
      status: { database: nothingChecked, cache: nothingChecked, backend: nothingChecked },
      doctor: []
    },
    serve: Effect.void
  }
  yield* runCommandLine(needs, "0.0.0", [...words, "--help"])
  return (yield* TestConsole.logLines).slice(before).map(String).join("\n")
})

it.effect(
  "when a document names a command or a flag, then it exists, and every command's help has an example",
  () =>
    Effect.gen(function* () {
      const known = [...(yield* help()).matchAll(/^ {2}([a-z]+(?:-[a-z]+)*) {2,}\S/gm)].map(
        (match) => match[1] ?? ""
      )
      assert.isAtLeast(known.length, 19)
      const helps = new Map<string, string>()
      for (const command of known) helps.set(command, yield* help(command))
      for (const [command, text] of helps) {
        assert.include(text, "EXAMPLES", command)
        for (const line of text.split("\n")) assert.isAtMost(line.length, 80, `${command}: ${line}`)
      }
      for (const line of (yield* help()).split("\n")) assert.isAtMost(line.length, 80, line)

      const lines = papers.flatMap(({ file, text }) =>
        // Not the namespace and the release of that name.
        [
          ...text.matchAll(
            /(?:^|(?<!-n|install|namespace)[\s`"(])tollgate ((?:[a-z]+-)*[a-z]+)\b([^`\n#|]*)/gm
          )
        ].map((match) => ({
          file,
          command: match[1] ?? "",
          flags: [...(match[2] ?? "").matchAll(/--([a-z]+(?:-[a-z]+)*)/g)].map((flag) => flag[1] ?? "")
        }))
      )
      // Rows of the reference's table: `create-key --tenant n …`.
      const rows = [...read("docs/reference.md").matchAll(/^\| `((?:[a-z]+-)[a-z-]+)([^|]*)/gm)].map(
        (match) => ({
          file: "docs/reference.md",
          command: match[1] ?? "",
          flags: []
        })
      )
      const wrong = [...lines, ...rows].filter(
        ({ command, flags }) =>
          !helps.has(command) || flags.some((flag) => !helps.get(command)?.includes(`--${flag}`))
      )
      assert.isAbove(lines.length, 15)
      assert.isAbove(rows.length, 8)
      assert.deepStrictEqual(wrong, [])
      const documented = read("docs/reference.md")
      assert.deepStrictEqual(
        known.filter((command) => !documented.includes(`\`${command}`)),
        [],
        "commands the reference does not name"
      )
    })
)

it("when the README grows, then it stays short: 150 lines, and 25 words to a sentence", () => {
  const text = read("README.md")
  assert.isAtMost(text.trimEnd().split("\n").length, 150)
  const prose = text
    .replaceAll(/```[\s\S]*?```/g, "")
    .replaceAll(/^\|.*$/gm, "")
    .replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replaceAll(/`[^`]*`/g, "code")
  const long = prose
    .split(/\n\n|\n- |(?<=[.:!?])\s/)
    .filter((sentence) => sentence.split(/\s+/).filter(Boolean).length > 25)
  assert.deepStrictEqual(long, [])
})
