/**
 * Whatever the README and the guide tell their reader to type is typed here, in a checkout of its own beside
 * a running `npm start`, and prints what they say it prints. What needs an engine is named below, with what runs it.
 */
import { existsSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Context, Effect, Layer, Option } from "effect"
import { SqlClient } from "effect/sql"
import { TestConsole } from "effect/testing"
import { layerPostgres as layerRegistry } from "../../src/admin/Registry.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { readRuntime } from "../../src/infra/embedded/RuntimeFile.ts"
import { checkout, npmStart, root, shell, type Started } from "../support/Checkout.ts"
import { blocks, inlineCommands, lines, readPaper, steps } from "../support/Paper.ts"
import { tollgateHere } from "../cli/inProcess.ts"
import { compileCache, freePort } from "../support/servers/processes.ts"
import { inWorld } from "../support/testWith.ts"

const readme = readPaper("README.md")
const reference = readPaper("docs/reference.md")
const guide = ["deploy", "run", "audit", "alerts"].map((page) => readPaper(`docs/${page}.md`))

/** Commands that cannot be typed here: why, and the file that holds them to their word. */
const elsewhere: Readonly<Record<string, { readonly why: string; readonly by: string }>> = {
  "npm ci && npm start": { why: "downloads everything", by: "lab/stranger/run.ts" },
  "npm ci && npm test": { why: "is this very run", by: ".ci/run" },
  "npm ci": { why: "downloads everything", by: "lab/stranger/run.ts" },
  "npm run rolling": { why: "takes a minute", by: "lab/rolling.ts" },
  "node build/start.js": { why: "wants its stores", by: "test/deploy/image.test.ts" },
  "npm run build": { why: "is typed there", by: "test/deploy/build.test.ts" },
  "docker compose up -d": { why: "needs an engine", by: "lab/stranger/compose.ts" },
  "docker compose --profile replicas up -d": { why: "needs an engine", by: "test/deploy/lint.sh" },
  "docker compose exec ollama ollama pull llama3.2": { why: "needs an engine", by: "docker-compose.yml" },
  "docker compose logs ollama": { why: "needs an engine", by: "docker-compose.yml" },
  'psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f deploy/postgres/roles.sql': {
    why: "needs a psql",
    by: "test/deploy/backup.test.ts"
  },
  "kubectl apply -k deploy/kubernetes": { why: "needs a cluster", by: "test/deploy/lint.sh" },
  "npm run manifests": { why: "needs helm", by: "test/deploy/lint.sh" },
  "npm run test:real": { why: "builds a model server", by: ".ci/run" },
  "helm install tollgate deploy/helm/tollgate --namespace tollgate --values values.yaml": {
    why: "needs a cluster",
    by: "lab/stranger/helm.ts"
  }
}
const commandsOf = (text: string) => [...blocks(text, "sh").flatMap(lines), ...inlineCommands(text)]

const isElsewhere = (command: string) =>
  Object.hasOwn(elsewhere, command) ||
  /\bpg_(?:dump|restore)\b|^docker compose exec -T postgres psql /.test(command) ||
  // They never end, or need a row that exists (test/cli/requests.test.ts), a client (test/cli/connect.test.ts) or a user who has
  // asked (test/cli/knobs.test.ts), or a receiver (test/cli/testAlert.test.ts), or take minutes.
  /^tollgate (?:requests .*--follow|show-request |status$|set-budget$|test-alert$|connect|\S+ --key webui --user )|^npm run (?:drill|stranger)/.test(
    command
  ) ||
  // A cluster's; what they do to a pod is `tollgate`, which is typed without them.
  /^kubectl (?:create namespace|-n tollgate create secret|rollout undo)/.test(command)

interface Reader extends Started {
  readonly folder: string
  readonly port: number
}

class Reading extends Context.Service<Reading, Reader>()("test/Reading") {}

const layerReading = Layer.effect(
  Reading,
  Effect.gen(function* () {
    const folder = yield* checkout
    const port = yield* freePort
    return { ...(yield* npmStart(folder, { PORT: String(port) })), folder, port }
  })
)

/** What differs from one run to the next is written as a name in angle brackets. */
const settled = (text: string, { folder, port }: Reader): string =>
  text
    .replaceAll(folder, "/home/you/tollgate")
    .replaceAll(`127.0.0.1:${port}`, "127.0.0.1:8080")
    .replaceAll(/tg_[0-9A-Za-z]{9}(?:[0-9A-Za-z]{32}|…)?/g, "<key>")
    .replaceAll(/\d{4}-\d\d-\d\d(?:T[\d:.]+Z| \d\d:\d\d UTC)/g, "<time>")
    .replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>")
    .replaceAll(/(?<="(?:total|load|prompt_eval|eval)_duration":)\d+/g, "<ns>")
    .replaceAll("\r", "")
    .trim()

/** A command of the papers, with this reader's address and key in it. */
const typed = (command: string, { key, port }: Reader): string =>
  command
    .replaceAll("127.0.0.1:8080", `127.0.0.1:${port}`)
    .replaceAll(/tg_\w{9}…/g, key)
    .replaceAll(/tg_\w{9}\b/g, key.slice(0, 12))
    .replaceAll(/(?<=--(?:key|prefix) )(?:…|anna\b)/g, key.slice(0, 12))
    .replaceAll(/(?<=--tenant )…/g, "demo")
    .replaceAll(/(?<=--daily )…/g, "1000")
    // In the image `tollgate` is a link to this file.
    .replace(
      /^(?:docker compose exec (?:-T )?gateway |kubectl -n tollgate exec deploy\/tollgate -- )?tollgate /,
      "node cli/tollgate.js "
    )
    .replace("~/.bashrc", "bashrc")

const type = (command: string, reader: Reader) =>
  shell(reader.folder, typed(command, reader), { KEY: reader.key, NODE_COMPILE_CACHE: compileCache })

/** What the command line says in this process: to start one for each command takes half a second of a processor. */
const inProcess = Effect.fnUntraced(function* (words: ReadonlyArray<string>, reader: Reader) {
  const runtime = Option.getOrThrow(yield* readRuntime(path.join(reader.folder, ".tollgate")))
  const admin = layerRegistry({ defaults: { rpm: 60, tpm: 1_000_000, concurrent: 8 } }).pipe(
    Layer.provideMerge(layerPostgres({ url: runtime.database, maxConnections: 1 }))
  )
  return yield* tollgateHere(...words).pipe(Effect.provide([admin, TestConsole.layer]))
})

const succeeds = Effect.fnUntraced(function* (command: string, reader: Reader) {
  const ran = yield* type(command, reader)
  assert.strictEqual(ran.code, 0, `${command}\n${ran.stderr}`)
  return ran.stdout
})

/** A key of its own for each test: one of them revokes it. */
const withOwnKey = Effect.gen(function* () {
  const reader = yield* Reading
  const key = (yield* succeeds(
    "node cli/tollgate.js create-key --tenant demo --name other --allow-duplicate",
    reader
  )).trim()
  assert.match(key, /^tg_/)
  return { ...reader, key }
})

inWorld(layerReading)("a reader who types what the papers say", (test, it) => {
  test("when the tour is typed, then it shows what it promises, from the first line to the last", function* () {
    const reader = yield* Reading
    const [start, ...tour] = blocks(readme, "console").flatMap(steps)
    assert.strictEqual(start?.command, "npm start")
    assert.include(settled(reader.said, reader), settled(start?.output ?? "-", reader))
    const seen: Array<string> = []
    for (const { command } of tour) {
      const { stderr, stdout } = yield* type(command, reader)
      // What npm says of the machine it runs on, and curl of its progress, are nobody's promise.
      const remarks = /curl/.test(command) ? "" : stderr.replaceAll(/^npm .*\n/gm, "")
      seen.push(settled(`$ ${command}\n${stdout}${remarks}`, reader))
    }
    const told = tour.map(({ command, output }) => settled(`$ ${command}\n${output}`, reader))
    assert.deepStrictEqual(seen, told)
  })

  test("when the three lines that npm start prints are typed, then each gets an answer", function* () {
    const reader = yield* Reading
    const { key } = yield* withOwnKey
    const printed = reader.said.split("\n").filter((line) => /^(?:curl|npx node) /.test(line))
    assert.lengthOf(printed, 3)
    for (const line of printed) {
      const { code, stderr, stdout } = yield* shell(reader.folder, line.replaceAll(reader.key, key))
      assert.strictEqual(code, 0, stderr)
      assert.include(stdout, "Hello", line)
    }
  })

  test("when every other command and query of README and guide is run, then it works", function* () {
    const reader = yield* withOwnKey
    const given = [readme, reference, ...guide].flatMap((text) => [
      ...blocks(text, "sh").flatMap(lines),
      ...inlineCommands(text)
    ])
    // Two ways to write the same are typed once.
    const here = new Set(
      given
        .filter(
          (command) => !isElsewhere(command) && !/<command>|^npx tollgate …|^npm start$|^SELECT/.test(command)
        )
        .map((command) => typed(command, reader))
    )
    assert.isAbove(here.size, 10)
    // The script that the guide says to save under this name.
    const script = guide.flatMap((text) => blocks(text, "ts")).find((code) => code.includes("layerInMemory"))
    writeFileSync(path.join(reader.folder, "try.ts"), script ?? "")
    // The files of names, prices and a system text that commands of the guide read.
    writeFileSync(path.join(reader.folder, "people.csv"), "name\nAna\nBo\n")
    writeFileSync(path.join(reader.folder, "tone.txt"), "Be brief.\n")
    const prices = guide.flatMap((text) => blocks(text, "yaml")).find((code) => code.includes("currency"))
    writeFileSync(path.join(reader.folder, "prices.yaml"), prices ?? "")
    for (const command of here) {
      // Without a pipe, a variable, a quoted word or a file it needs no shell. `list-models` asks the model server.
      const words =
        /^(?:npx tollgate|node cli\/tollgate\.js) (?!list-models)((?:(?!\.(?:csv|json|md|yaml)\b)[\w\s.,:/-])+)$/.exec(
          command
        )?.[1]
      if (words === undefined) {
        const said = yield* succeeds(command, reader)
        if (command.includes("try.ts")) assert.match(said, /^200 \{.*"content":"Hello world".*"done":true/m)
      } else {
        const ran = yield* inProcess(words.split(" "), reader)
        assert.strictEqual(ran.code, 0, `${command}\n${ran.stderr}`)
      }
    }

    const queries = [
      ...guide.flatMap((text) => blocks(text, "sql")),
      ...given.filter((code) => code.startsWith("SELECT"))
    ]
      .join(";\n")
      .replaceAll("'…'", "'01a1fca4-4f59-7db5-bd9d-1ef8280fed72'")
      .split(";")
      .map((query) => query.replaceAll(/^--.*$/gm, "").trim())
      .filter((query) => query !== "")
    assert.isAbove(queries.length, 5)
    const runtime = Option.getOrThrow(yield* readRuntime(path.join(reader.folder, ".tollgate")))
    yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* Effect.forEach(queries, (query) => sql.unsafe(query))
    }).pipe(Effect.provide(layerPostgres({ url: runtime.database, maxConnections: 1 })))
  })

  it("when a command is in the papers, then a test runs it", () => {
    const told = new Set([readme, reference, ...guide].flatMap(commandsOf))
    for (const [command, { by }] of Object.entries(elsewhere)) {
      assert.isTrue(told.has(command), `nobody is told to type ${command}`)
      assert.isTrue(existsSync(path.join(root, by)), `${command}: ${by}`)
    }
  })
})
