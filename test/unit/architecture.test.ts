/** The import rules of the house: which way the arrows point, and who may seal evidence or name a live layer. */
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { seal } from "../../src/domain/Evidence.ts"

const root = path.resolve(import.meta.dirname, "../..")

const files = ["src", "cli", "migrations", "test"]
  .flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: "utf8" }).map((name) =>
      path.posix.join(folder, name)
    )
  )
  .filter((file) => /\.(?:ts|js)$/.test(file))

interface Import {
  readonly from: string
  /** path from the root, or a package name */
  readonly to: string
  readonly typeOnly: boolean
}

const statement = /^(?:import|export)\s+(type\s)?(?:[^"';]*?\sfrom\s+)?"([^"]+)"|\bimport\(\s*"([^"]+)"/gm

const imports: ReadonlyArray<Import> = files.flatMap((from) =>
  [...readFileSync(path.join(root, from), "utf8").matchAll(statement)].map((match) => {
    const to = match[2] ?? match[3] ?? ""
    return {
      from,
      to: to.startsWith(".") ? path.posix.join(path.posix.dirname(from), to) : to,
      typeOnly: match[1] !== undefined
    }
  })
)

const layerOf = (file: string): string => /^src\/([^/]+)\//.exec(file)?.[1] ?? ""
const shown = (entries: ReadonlyArray<Import>) => entries.map(({ from, to }) => `${from} -> ${to}`)
const within = (...folders: ReadonlyArray<string>) => {
  const starts = folders.map((folder) => `${folder}/`)
  return (file: string) => starts.some((start) => file.startsWith(start))
}

it("finds the files it is about", () => {
  assert.isAbove(files.length, 40)
  assert.isAbove(imports.filter(({ to }) => to.startsWith("src/domain/")).length, 20)
})

it("domain imports no other room", () => {
  const out = imports.filter(
    ({ from, to }) => layerOf(from) === "domain" && to.startsWith("src/") && layerOf(to) !== "domain"
  )
  assert.deepStrictEqual(shown(out), [])
})

it("imports point one way: domain, ports, request, http", () => {
  const ports = ["gates", "backend", "audit", "ledger", "promptlog", "secrets", "admin"]
  const above: Record<string, ReadonlyArray<string>> = {
    infra: ["domain", ...ports, "request", "http"],
    ...Object.fromEntries(ports.map((port) => [port, ["request", "http"]])),
    request: ["http"]
  }
  assert.deepStrictEqual(
    shown(imports.filter(({ from, to }) => above[layerOf(from)]?.includes(layerOf(to)))),
    []
  )
})

it("each gate seals its own link of the evidence, and nobody else does: domain/Evidence.ts", () => {
  const rooms: Readonly<Record<string, (file: string) => boolean>> = {
    KeyStore: within("src/gates/keys"),
    Discovery: within("src/gates/models"),
    Limiter: within("src/gates/limits"),
    Queue: within("src/gates/queue"),
    Audit: within("src/audit")
  }
  assert.sameMembers(Object.keys(rooms), Object.keys(seal))
  const importers = imports.filter(
    ({ from, to, typeOnly }) => to === "src/domain/Evidence.ts" && !typeOnly && !within("test")(from)
  )
  const wrong = importers.flatMap(({ from }) => {
    const text = readFileSync(path.join(root, from), "utf8")
    // Only by its name, so that this test can read which link is sealed.
    const other = /\bseal\b(?!\.\w)(?!\s*\})/.test(
      text.replaceAll(/^import .*$/gm, "").replaceAll(/\/\*[^]*?\*\//g, "")
    )
    const sealed = [...text.matchAll(/\bseal\.(\w+)/g)].map((match) => match[1] ?? "")
    return [
      ...(other ? [`${from}: seal without the name of a link`] : []),
      ...sealed.filter((link) => rooms[link]?.(from) !== true).map((link) => `${from}: seal.${link}`)
    ]
  })
  assert.deepStrictEqual(wrong, [])
  assert.isAbove(importers.length, 5)
})

it("only the wiring names live layers and their twins", () => {
  const wiring = (file: string) => ["src/App.ts", "cli/main.ts"].includes(file) || within("test")(file)
  const named = imports.filter(
    ({ from, to }) =>
      /^src\/.*\/(?:live|postgres|polling|\w+FromMeter|RedisMeter|RedisQueueStore|client|memory|layer)\.ts$/.test(
        to
      ) &&
      !wiring(from) &&
      path.posix.dirname(from) !== path.posix.dirname(to)
  )
  assert.deepStrictEqual(shown(named), [])
})

it("a released migration stands alone: it imports nothing of ours", () => {
  const ours = imports.filter(({ from, to }) => within("migrations")(from) && /^(?:src|cli|test)\//.test(to))
  assert.deepStrictEqual(shown(ours), [])
})

it("the product does not import its tests", () => {
  assert.deepStrictEqual(
    shown(imports.filter(({ from, to }) => !within("test")(from) && to.startsWith("test/"))),
    []
  )
})

/** `x.f = () => …`, `x[f] ??= function …`; the comment says so as well, but in backticks. */
const writtenIntoProperty =
  /^(?!\s*(?:export )?const )[^`\n]*[\w)\]](?:\.#?\w+|\[[^\]\n]+\])\s*(?:\?\?|\|\|)?=\s*(?:async\s*)?(?:\([^()]*\)\s*=>|\w+\s*=>|function\b)/m

it("no function is written where it is assigned to a property: V8 would keep it with the old ones (stream.ts)", () => {
  assert.match("self.transform = (upstream, scope) => 1", writtenIntoProperty)
  assert.match("  this.#wake ??= function () {", writtenIntoProperty)
  assert.notMatch('  const matches: Check["matches"] = (secret) => true', writtenIntoProperty)
  assert.deepStrictEqual(
    files
      .filter(within("src"))
      .filter((file) => writtenIntoProperty.test(readFileSync(path.join(root, file), "utf8"))),
    []
  )
})

it("files are small and named after what they are", () => {
  const drawer = /(?:^|\/)(?:utils?|common|helpers?|misc|shared)(?:\/|\.[tj]s$)/i
  assert.deepStrictEqual(
    files.filter((file) => drawer.test(file)),
    []
  )
  const long = files.filter((file) => readFileSync(path.join(root, file), "utf8").split("\n").length > 400)
  assert.deepStrictEqual(long, [])
})
