/** What documents name exists, and what an operator meets is in the guide. */
import { globSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestConsole } from "effect/testing"
import type { Parts } from "../../cli/Needs.ts"
import { runCommandLine } from "../../cli/program.ts"
import { schemaBounds } from "../../src/backend/ollama/guards/jsonSchema.ts"
import { type Outcome, outcomes } from "../../src/domain/Outcome.ts"
import { maxDimensions, maxInputs, maxTopLogprobs } from "../../src/http/dialect/fields.ts"
import { maxImages, maxPixels, maxSide } from "../../src/http/dialect/images.ts"
import { maxStopLength, maxStops } from "../../src/http/dialect/sampling.ts"
import { maxItems } from "../../src/http/dialect/responses/input.ts"
import { maxListed, maxToolDepth, maxToolValues } from "../../src/http/dialect/tools.ts"
import { backgroundTasks } from "../../src/observability/Metrics.ts"
import { table, variablesOf } from "../../src/Settings.ts"
import { root, textOf } from "../support/sources.ts"
import { testWith } from "../support/testWith.ts"

const filesOf = (...patterns: ReadonlyArray<string>) =>
  globSync([...patterns], { cwd: root })
    .toSorted()
    .map((file) => ({ file, text: textOf(file) }))

const papers = filesOf("README.md", "CONTRIBUTING.md", "Dockerfile", "docker-compose.yml", "docs/**/*.*")
const code = filesOf("{src,cli,test,real,playground}/**/*.ts")
const page = (name: string) => papers.find(({ file }) => file === `docs/${name}.md`)?.text ?? ""

const named = (files: typeof papers, pattern: RegExp) =>
  files.flatMap(({ file, text }) => [...text.matchAll(pattern)].map((match) => ({ file, match })))

/** At least `least` names are found, and none of them is unknown. */
const allKnown = (names: ReturnType<typeof named>, least: number, isKnown: (name: string) => boolean) => {
  assert.isAtLeast(names.length, least)
  const unknown = names.filter(({ match }) => !isKnown(match[1] ?? ""))
  assert.deepStrictEqual(
    unknown.map(({ file, match }) => `${file}: ${match[0]}`),
    []
  )
}

it("when a document quotes a test, then its file has these words", () => {
  const quotes = named(papers, /`((?:test|real|playground)\/[\w./-]+\.ts)` "(?:when )?([^"]+)"/g)
  assert.isAtLeast(quotes.length, 100)
  const lost = quotes.filter(({ match: [, file = "", words = ""] }) => {
    const text = code.find((one) => one.file === file)?.text ?? ""
    return !text.includes(words)
  })
  assert.deepStrictEqual(
    lost.map(({ file, match }) => `${file}: ${match[0]}`),
    []
  )
})

it("when a setting is in the code, then the table of the reference has the same row", () => {
  const reference = page("reference").split("<!-- settings")[1] ?? ""
  assert.deepStrictEqual(
    reference.slice(reference.indexOf("| Setting")).split("\n\n")[0]?.split("\n").slice(2),
    Object.values(table).map(({ expected, name, shown }) => `| \`${name}\` | ${shown} | ${expected} |`)
  )
})

it("when a document names a setting, a metric or an error, then it exists", () => {
  const settings = new Set(Object.values(table).flatMap(variablesOf))
  const foreign =
    /^(?:NODE|MALLOC|OLLAMA|COMPOSE|POSTGRES|REDIS|TEST|DEFAULT|TOLLGATE|CLAUDE_CODE|COPILOT|OPENAI)_|^ENABLE_FORWARD_USER_INFO_HEADERS$|^(?:UNABLE|CERT|SELF|DEPTH|ERR|ECONN|EADDR|EACC|HOSTNAME)/
  allKnown(
    named(papers, /`([A-Z]{2,}_[A-Z_]+)(?:=[^`]*)?`/g),
    30,
    (name) => settings.has(name) || foreign.test(name)
  )
  const source = code
    .filter(({ file }) => file.startsWith("src/"))
    .map(({ text }) => text)
    .join("\n")
  allKnown(named(papers, /`((?:tollgate|gateway)_[a-z_]+)(?:\{[^`]*)?`/g), 10, (name) =>
    source.includes(`"${name.replace(/_(?:sum|count|bucket)$/, "")}"`)
  )
})

it("when a metric or an error is in the code, then the reference has its row, and no other", () => {
  const declared = code
    .filter(({ file }) => file.startsWith("src/"))
    .flatMap(({ text }) => [
      ...text.matchAll(
        /\b(?:name: |probe\(\s*|counter\(\s*|gauge\(\s*|histogram\(\s*)"((?:tollgate|gateway)_[a-z_]+)"/g
      )
    ])
  const told = [...page("reference").matchAll(/^\| `((?:tollgate|gateway)_[a-z_]+)` \|/gm)]
  const names = (found: ReadonlyArray<RegExpExecArray>) => found.map((match) => match[1] ?? "")
  assert.sameMembers(names(told), names(declared))

  const errors = Object.values<Outcome>(outcomes).flatMap(({ type }) => type ?? [])
  const section = /\n## Errors\n[^]*?\n## /.exec(page("reference"))?.[0] ?? ""
  assert.deepStrictEqual(
    errors.filter((type) => !section.includes(`\`${type}\``)),
    []
  )
  const known = new Set(errors)
  allKnown(named([{ file: "docs/reference.md", text: section }], /^\| \d{3} \| `(\w+)`/gm), 8, (name) =>
    known.has(name)
  )
})

/** The names in the first cells of the table after `<!-- name -->` in `text`. */
const rowsOf = (name: string, text = page("alerts")) => {
  const [, after = ""] = text.split(`<!-- ${name} -->\n`)
  return [...(after.split("\n\n")[0] ?? "").matchAll(/^\| (`[^|]*) \|/gm)].flatMap(([, cell = ""]) =>
    [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? "")
  )
}

it("when there is an alert or a background task, then the page of alerts has its row, and no other", () => {
  const alerts = textOf("deploy/prometheus/alerts.yaml").matchAll(/- alert: (\w+)/g)
  assert.sameMembers(
    rowsOf("alerts"),
    [...alerts].map((match) => match[1] ?? "")
  )
  assert.sameMembers(rowsOf("tasks"), [...backgroundTasks])
})

it("when a list or a schema has a bound, then the tables of the protocol have it", () => {
  const bounds = (name: string) =>
    [
      ...(page("protocol").split(`<!-- ${name} -->\n`)[1]?.split("\n\n")[0] ?? "").matchAll(
        /^\|[^|]*\| (\d+) +\|/gm
      )
    ].map((match) => Number(match[1]))
  assert.deepStrictEqual(bounds("lists"), [
    maxStops,
    maxStopLength,
    maxInputs,
    maxDimensions,
    maxTopLogprobs,
    maxImages,
    maxPixels,
    maxSide,
    maxItems,
    maxListed,
    table.toolsMax.fallback,
    maxToolDepth,
    maxToolValues
  ])
  assert.deepStrictEqual(bounds("schemas"), Object.values(schemaBounds))
})

it("when code logs a warning or an error, then its message is fixed and is in the page of alerts", () => {
  const calls = named(
    code.filter(({ file }) => /^(?:src|cli)\//.test(file)),
    /Effect\.log(?:Warning|Error|Fatal)\(\s*(?:"([^"]+)")?/g
  )
  const messages = calls.map(({ match }) => match[1] ?? "not a fixed text")
  assert.sameMembers(rowsOf("log events").slice(1), [...new Set(messages)])
})

const nothing = Effect.die("help needs it")
const needs: Parts = {
  registry: nothing,
  records: nothing,
  books: nothing,
  database: nothing,
  calendar: nothing,
  models: nothing,
  replicas: nothing,
  status: [],
  doctor: [],
  serve: nothing
}

const help = Effect.fnUntraced(function* (...words: ReadonlyArray<string>) {
  const before = (yield* TestConsole.logLines).length
  yield* runCommandLine(needs, "0.0.0", [...words, "--help"])
  return (yield* TestConsole.logLines).slice(before).map(String).join("\n")
})

const test = testWith(it.effect)

test("when a document names a command or a flag, then it exists, and the reference has every command", function* () {
  const known = [...(yield* help()).matchAll(/^ {2}([a-z]+(?:-[a-z]+)*) {2,}\S/gm)].map(
    (match) => match[1] ?? ""
  )
  const helps = new Map<string, string>()
  for (const command of known) helps.set(command, yield* help(command))
  for (const [command, text] of helps) {
    assert.include(text, "EXAMPLES", command)
    for (const line of text.split("\n")) assert.isAtMost(line.length, 80, `${command}: ${line}`)
  }
  // Not the namespace and the release of that name.
  const typed = named(
    papers,
    /(?:^|(?<!-n|install|namespace)[\s`"(])tollgate ((?:[a-z]+-)*[a-z]+)\b([^`\n#|]*)/gm
  )
  allKnown(typed, 15, (name) => helps.has(name))
  const wrong = typed.flatMap(({ match: [line, name = "", flags = ""] }) =>
    [...flags.matchAll(/--[a-z]+(?:-[a-z]+)*/g)].some(([flag]) => !helps.get(name)?.includes(flag))
      ? [line]
      : []
  )
  assert.deepStrictEqual(wrong, [])
  const reference = papers.filter(({ file }) => file === "docs/reference.md")
  allKnown(named(reference, /^\| `([a-z]+-[a-z-]+)/gm), 8, (name) => helps.has(name))
  assert.deepStrictEqual(
    known.filter((command) => !reference[0]?.text.includes(`\`${command}`)),
    []
  )
})
