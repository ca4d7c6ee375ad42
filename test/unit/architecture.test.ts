/** The import rules of the house: which way the arrows point, and who may seal evidence or name a live layer. */
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { seal } from "../../src/domain/Evidence.ts"
import { type Outcome, outcomes } from "../../src/domain/Outcome.ts"
import { sourcesIn, textOf } from "../support/sources.ts"

const files = sourcesIn("src", "build", "playground", "cli", "migrations", "test", "real", "lab")

interface Import {
  readonly from: string
  /** path from the root, or a package name */
  readonly to: string
  readonly typeOnly: boolean
}

const statement = /^(?:import|export)\s+(type\s)?(?:[^"';]*?\sfrom\s+)?"([^"]+)"|\bimport\(\s*"([^"]+)"/gm

const imports: ReadonlyArray<Import> = files.flatMap((from) =>
  [...textOf(from).matchAll(statement)].map((match) => {
    const to = match[2] ?? match[3] ?? ""
    return {
      from,
      to: to.startsWith(".") ? path.posix.join(path.posix.dirname(from), to) : to,
      typeOnly: match[1] !== undefined
    }
  })
)

const shown = (entries: ReadonlyArray<Import>) => entries.map(({ from, to }) => `${from} -> ${to}`)
const within = (...folders: ReadonlyArray<string>) => {
  const starts = folders.map((folder) => `${folder}/`)
  return (file: string) => starts.some((start) => file.startsWith(start))
}

/** They may name live layers, and import tests. */
const inTests = within("test", "playground/test", "real", "lab")

/** From the lowest. `Settings` is `src/Settings.ts`; the other files of `src` itself join the rooms and stand above all. */
const rooms = [
  "domain",
  "infra",
  "Settings",
  "observability",
  "memory",
  "secrets",
  "backend",
  "gates",
  "audit",
  "promptlog",
  "ledger",
  "replicas",
  "admin",
  "request",
  "http",
  "startup"
]

const roomOf = (file: string): string =>
  file === "src/Settings.ts" ? "Settings" : (/^src\/([^/]+)\//.exec(file)?.[1] ?? "")

const rule = `A file imports from its own room and from rooms below it: ${rooms.join(" < ")}. Types count too.`

it("when a room is in src, then it has its place in the order", () => {
  const found = new Set(files.filter(within("src")).map(roomOf))
  assert.deepStrictEqual([...found].filter((room) => room !== "").toSorted(), rooms.toSorted(), rule)
})

it("when a file imports another, then the import goes down the order and there is no circle of rooms", () => {
  const up = imports.filter(({ from, to }) => {
    const [above, below] = [roomOf(from), roomOf(to)]
    return above !== "" && to.startsWith("src/") && rooms.indexOf(below) > rooms.indexOf(above)
  })
  assert.deepStrictEqual(shown(up), [], rule)
})

/** Each node that reaches itself by `next`, with the others of its circle. */
const circlesOf = (next: ReadonlyMap<string, ReadonlySet<string>>): ReadonlyArray<string> => {
  const reachedFrom = (start: string): ReadonlySet<string> => {
    const reached = new Set(next.get(start))
    for (const node of reached) for (const further of next.get(node) ?? []) reached.add(further)
    return reached
  }
  const reached = new Map([...next.keys()].map((node) => [node, reachedFrom(node)]))
  return [...reached.entries()]
    .filter(([node, others]) => others.has(node))
    .map(
      ([node, others]) =>
        `${node} <-> ${[...others].filter((other) => reached.get(other)?.has(node)).join(", ")}`
    )
}

/** What each file of `ours` imports, by the name that `of` gives to a file. */
const graph = (ours: (file: string) => boolean, of: (file: string) => string) => {
  const next = new Map<string, Set<string>>()
  for (const { from, to } of imports)
    if (ours(from) && ours(to) && (of(from) !== of(to) || from === to))
      next.set(of(from), (next.get(of(from)) ?? new Set()).add(of(to)))
  return next
}

it("when a folder imports another one, then that one does not import it back, directly or through others", () => {
  const folders = graph((file) => roomOf(file) !== "", path.posix.dirname)
  assert.deepStrictEqual(
    circlesOf(folders),
    [],
    "A folder in a room imports only folders that do not import it. Move what both need into the lower one."
  )
  assert.isAbove(folders.size, 20)
})

it("when a file imports another one, types too, then that one does not import it back, directly or through others", () => {
  const ofFiles = graph(within("src", "cli"), (file) => file)
  assert.deepStrictEqual(circlesOf(ofFiles), [], "Move what both files need into one that imports neither.")
  assert.isAbove(ofFiles.size, 200)
})

/** Files that speak to one kind of store or server. */
const adapter =
  /^src\/.*(?:\/(?:redis|memory|ollama|demo|embedded)\/|\/(?:live|postgres|memory|polling)\.ts$)/

it("when a file declares a service, then it imports no adapter", () => {
  const ports = files.filter(
    (file) =>
      within(
        "src/gates",
        "src/backend",
        "src/audit",
        "src/ledger",
        "src/promptlog",
        "src/secrets",
        "src/replicas",
        "src/admin"
      )(file) &&
      !adapter.test(file) &&
      /\bContext\.Service</.test(textOf(file))
  )
  assert.isAbove(ports.length, 10)
  // What a port imports of its own room is part of the port.
  const reached = new Set(ports)
  for (const file of reached)
    for (const { from, to } of imports)
      if (from === file && roomOf(to) === roomOf(file) && !adapter.test(to)) reached.add(to)
  assert.deepStrictEqual(
    shown(imports.filter(({ from, to }) => reached.has(from) && adapter.test(to))),
    [],
    "A port and the files it imports import no adapter (redis, postgres, memory, ollama, …): adapters import the port."
  )
})

it("when a gate or a surface asks what the model server survives, then it asks the port: no file of src imports its adapter", () => {
  const users = imports.filter(
    ({ from, to }) =>
      to.startsWith("src/backend/ollama/") &&
      !within("src/backend", "src/startup")(from) &&
      from !== "src/App.ts" &&
      within("src")(from)
  )
  assert.deepStrictEqual(shown(users), [], "`Backend` has the guards of its server (src/backend/Guards.ts).")
})

it("when a gate seals evidence, then it seals its own link and no other file does: domain/Evidence.ts", () => {
  const rooms: Readonly<Record<string, (file: string) => boolean>> = {
    KeyStore: within("src/gates/keys"),
    Discovery: within("src/gates/models"),
    Limiter: within("src/gates/limits"),
    Queue: within("src/gates/queue"),
    Audit: within("src/audit")
  }
  assert.sameMembers(Object.keys(rooms), Object.keys(seal))
  const importers = imports.filter(
    ({ from, to, typeOnly }) => to === "src/domain/Evidence.ts" && !typeOnly && !inTests(from)
  )
  const wrong = importers.flatMap(({ from }) => {
    const text = textOf(from)
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
  assert.isAbove(importers.length, 4)
})

it("when a request ends, then its error type comes from domain/Outcome.ts and no other file writes one", () => {
  const types = new Set(Object.values<Outcome>(outcomes).flatMap(({ type }) => type ?? []))
  const named = files.filter(within("src")).filter((file) => {
    if (file === "src/domain/Outcome.ts") return false
    // A message may read like a type: it is what a person is told.
    const text = textOf(file).replaceAll(/message: "\w+"/g, "")
    return [...text.matchAll(/["'](\w+)["']/g)].some((match) => types.has(match[1] ?? ""))
  })
  assert.deepStrictEqual(named, [])
  assert.isAbove(types.size, 10)
})

it("when a file names a live layer or a twin, then it is part of the wiring", () => {
  const wiring = (file: string) => file === "src/App.ts" || within("cli/live")(file) || inTests(file)
  const named = imports.filter(
    ({ from, to }) =>
      /^src\/.*\/(?:live|postgres|polling|RedisMeter|RedisQueueStore|client|memory|layer)\.ts$/.test(to) &&
      !wiring(from) &&
      path.posix.dirname(from) !== path.posix.dirname(to)
  )
  assert.deepStrictEqual(shown(named), [])
})

it("when a migration is released, then it imports nothing of src", () => {
  const ours = imports.filter(({ from, to }) => within("migrations")(from) && /^(?:src|cli|test)\//.test(to))
  assert.deepStrictEqual(shown(ours), [])
})

it("when a file imports another, then the gateway needs no test, and a test no program of the lab", () => {
  const upwards = imports.filter(
    ({ from, to }) =>
      (!inTests(from) && to.startsWith("test/")) || (!within("lab")(from) && to.startsWith("lab/"))
  )
  assert.deepStrictEqual(shown(upwards), [])
})

it("when a text of a client or a model is JSON, then V8 does not read its keys with escapes: readJson of domain/json.ts", () => {
  // Numbers have no keys.
  const allowed = new Set(["src/domain/json.ts", "src/backend/ollama/decodeEmbeddings.ts"])
  assert.deepStrictEqual(
    files.filter(within("src")).filter((file) => textOf(file).includes("JSON.parse(") && !allowed.has(file)),
    []
  )
})

it("when a file is in src, then it is small and named after what it has", () => {
  const drawer = /(?:^|\/)(?:utils?|common|helpers?|misc|shared)(?:\/|\.[tj]s$)/i
  assert.deepStrictEqual(
    files.filter((file) => drawer.test(file)),
    []
  )
  const long = files.filter(within("src", "cli")).filter((file) => textOf(file).split("\n").length > 400)
  assert.deepStrictEqual(long, [])
})
