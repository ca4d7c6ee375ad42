/**
 * Every client of the guide against the gateway, with the real server behind it. `WRITE=1` (`npm run test:clients`)
 * writes what was found into docs/clients/README.md; else it has to be what stands there. `CLIENTS=litellm,aider` runs some.
 */
import { existsSync } from "node:fs"
import { mkdir, readFile, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Console, Effect, Schema } from "effect"
import { Registry } from "../src/admin/Registry.ts"
import { call, eventually, Gateway, newKey } from "../test/support/Gateway.ts"
import { clients, type ClientScript, known } from "./clients/catalogue.ts"
import { canBuild } from "./clients/install.ts"
import { Result, runClient } from "./clients/runClients.ts"
import { tableOf, withTable } from "./clients/table.ts"
import { layerRealGateway } from "./RealGateway.ts"
import { sql } from "../test/support/sql.ts"

const guide = path.resolve(import.meta.dirname, "../docs/clients/README.md")
const chosen = (process.env["CLIENTS"] ?? "").split(",").filter((name) => name !== "")
const nameOf = ({ args, script }: ClientScript): string => [script, ...args].join(" ")
const asked = clients.filter(
  (script) => chosen.length === 0 || chosen.some((name) => nameOf(script).includes(name))
)

/** What each script was last seen to do, so that a run of some clients can write the whole table. */
const seenFile = path.resolve(import.meta.dirname, "../node_modules/.cache/tollgate/clients.json")

const decodeSeen = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Record(Schema.String, Schema.Array(Result)))
)

const readSeen = Effect.flatMap(
  Effect.promise(async () => (existsSync(seenFile) ? await readFile(seenFile, "utf8") : "{}")),
  decodeSeen
)

/** A key with one token in all, and that one used. */
const usedUp = Effect.gen(function* () {
  const registry = yield* Registry
  const { prefix, secret } = yield* newKey()
  yield* registry.changeKey(prefix, { budgetTotal: 1 })
  const body = {
    model: "plain",
    messages: [{ role: "user", content: "x" }],
    stream: false,
    options: { num_predict: 1 }
  }
  yield* eventually(call("/api/chat", { secret, body }), ({ status }) => status === 429)
  return secret
})

/** How many of the key's requests were left by their client. */
const leftEarly = Effect.fnUntraced(function* (prefix: string) {
  const rows = yield* sql<{
    readonly n: bigint
  }>`SELECT count(*) AS n FROM audit_log WHERE key_prefix = ${prefix} AND status = 499`
  return Number(rows[0]?.n ?? 0)
})

const surfaces = { EXTRA_SURFACES: "responses,messages" }

type Found = ReadonlyArray<Result>

/** Failures that are not known, and known ones that are none any more. */
const unexpected = (results: Found): ReadonlyArray<string> =>
  results.flatMap(({ case: name, client, detail, result }) => {
    const fails = result === "fails"
    if (fails === `${client}, ${name}` in known) return []
    return [`${client}, ${name}: ${fails ? detail : "works now"}`]
  })

layer(layerRealGateway(surfaces), { excludeTestServices: true, timeout: 3_600_000 })(
  "the clients people use",
  (it) => {
    const found = new Map<string, Found>()
    for (const script of asked) {
      // A toolchain that is missing leaves the cases of the guide as they are.
      it.effect.skipIf(!canBuild(script))(
        `when ${nameOf(script)} runs, then it finds what the guide says`,
        () =>
          Effect.gen(function* () {
            const { url } = yield* Gateway
            const { prefix, secret } = yield* newKey()
            const wrongKey = `${secret.slice(0, -1)}${secret.endsWith("0") ? "1" : "0"}`
            const keys = { url, key: secret, wrongKey, limitedKey: yield* usedUp }
            const results = yield* runClient(script, keys)
            found.set(nameOf(script), results)
            if (results.some(({ case: name, result }) => name === "abort" && result === "works")) {
              const seen = yield* eventually(leftEarly(prefix), (count) => count > 0)
              assert.isAbove(seen, 0, "the abort reached the gateway")
            }
            assert.deepStrictEqual(unexpected(results), [])
          }),
        600_000
      )
    }

    it.effect("when the clients were run, then the guide's table has the results", () =>
      Effect.gen(function* () {
        const all = { ...(yield* readSeen), ...Object.fromEntries(found) }
        yield* Effect.promise(() => mkdir(path.dirname(seenFile), { recursive: true }))
        yield* Effect.promise(() => writeFile(seenFile, JSON.stringify(all)))
        const now = [...found.values()].flat()
        const works = now.filter(({ result }) => result === "works").length
        const fails = now.filter(({ result }) => result === "fails").length
        yield* Console.log(`clients: ${works} of ${works + fails} cases of ${asked.length} clients work`)
        const text = yield* Effect.promise(() => readFile(guide, "utf8"))
        const next = withTable(text, tableOf(clients.flatMap((script) => all[nameOf(script)] ?? [])))
        if (process.env["WRITE"] === "1") yield* Effect.promise(() => writeFile(guide, next))
        else if (chosen.length === 0) assert.strictEqual(text, next, "npm run test:clients writes it")
      })
    )
  }
)
