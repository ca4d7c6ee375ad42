/**
 * Every client of the guide against the gateway, with the real server behind it. `WRITE=1` (`npm run test:clients`)
 * writes what was found into docs/clients.md; else it has to be what stands there. `CLIENTS=litellm,aider` runs some.
 */
import { readFile, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Console, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Registry } from "../../src/registry/Registry.ts"
import { call, eventually, Gateway, newKey } from "../support/Gateway.ts"
import { clients, known } from "./clients/catalogue.ts"
import { type Result, runClient } from "./clients/runClients.ts"
import { tableOf, withTable } from "./clients/table.ts"
import { layerRealGateway } from "./RealGateway.ts"

const guide = path.resolve(import.meta.dirname, "../../docs/clients.md")
const chosen = (process.env["CLIENTS"] ?? "").split(",").filter((name) => name !== "")
const asked = clients.filter(
  ({ script }) => chosen.length === 0 || chosen.some((name) => script.includes(name))
)

/** A key with one token in all, and that one used. */
const usedUp = Effect.gen(function* () {
  const registry = yield* Registry
  const { prefix, secret } = yield* newKey()
  yield* registry.setBudgets(prefix, { total: 1 })
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
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{
    readonly n: bigint
  }>`SELECT count(*) AS n FROM audit_log WHERE key_prefix = ${prefix} AND status = 499`
  return Number(rows[0]?.n ?? 0)
})

layer(layerRealGateway(), { excludeTestServices: true, timeout: 3_600_000 })(
  "the clients people use",
  (it) => {
    const found: Array<Result> = []
    for (const script of asked) {
      it.effect(
        `${script.environment}: ${script.script} ${script.args.join(" ")}`,
        () =>
          Effect.gen(function* () {
            const { url } = yield* Gateway
            const { prefix, secret } = yield* newKey()
            const wrongKey = `${secret.slice(0, -1)}${secret.endsWith("0") ? "1" : "0"}`
            const results = yield* runClient(script, {
              url,
              key: secret,
              wrongKey,
              limitedKey: yield* usedUp
            })
            found.push(...results)
            const aborted = results.some(({ case: name, result }) => name === "abort" && result === "works")
            if (aborted) {
              const seen = yield* eventually(leftEarly(prefix), (count) => count > 0)
              assert.isAbove(seen, 0, "the abort reached the gateway")
            }
            const wrong = results.flatMap(({ case: name, client, detail, result }) => {
              const fails = result === "fails"
              return fails === `${client}, ${name}` in known
                ? []
                : [`${client}, ${name}: ${fails ? detail : "works now"}`]
            })
            assert.deepStrictEqual(wrong, [])
          }),
        600_000
      )
    }

    it.effect("the guide's table says what was found", () =>
      Effect.gen(function* () {
        const text = yield* Effect.promise(() => readFile(guide, "utf8"))
        const next = withTable(text, tableOf(found))
        const works = found.filter(({ result }) => result === "works").length
        const fails = found.filter(({ result }) => result === "fails").length
        yield* Console.log(`clients: ${works} of ${works + fails} cases of ${asked.length} clients work`)
        if (chosen.length > 0) return
        if (process.env["WRITE"] === "1") yield* Effect.promise(() => writeFile(guide, next))
        else assert.strictEqual(text, next, "npm run test:clients writes it")
      })
    )
  }
)
