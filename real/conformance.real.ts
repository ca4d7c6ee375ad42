/**
 * The same random requests to the server and to the gateway before it: the same frames, and a ledger with the
 * server's own counts. CONFORMANCE_RUNS and CONFORMANCE_SEED choose others.
 */
import { mkdir, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Console, Effect } from "effect"
import fc from "fast-check"
import { Registry } from "../src/admin/Registry.ts"
import { auditRow, call, newKey } from "../test/support/Gateway.ts"
import { compare, countsOf, type Said } from "./conformance/compare.ts"
import { anyCase, type Case, isBounded } from "./conformance/requests.ts"
import { layerRealGateway } from "./RealGateway.ts"
import { minorVersion, RealOllama } from "./RealOllama.ts"

const runs = Number(process.env["CONFORMANCE_RUNS"] ?? "1000")
const seed = Number(process.env["CONFORMANCE_SEED"] ?? "1")

/** The requests that were not answered alike, one line each. */
const report = path.resolve(import.meta.dirname, "../node_modules/.cache/tollgate/conformance.jsonl")

const direct = Effect.fnUntraced(function* ({ body, path: target }: Case) {
  const { url } = yield* RealOllama
  return yield* Effect.promise(async (signal): Promise<Said> => {
    const answer = await fetch(new URL(target, url), {
      method: "POST",
      body: JSON.stringify(body),
      signal: AbortSignal.any([signal, AbortSignal.timeout(60_000)])
    })
    return {
      status: answer.status,
      contentType: answer.headers.get("content-type") ?? "",
      text: await answer.text()
    }
  })
})

layer(layerRealGateway(), { excludeTestServices: true, timeout: 600_000 })(
  "beside the server itself",
  (it) => {
    it.effect(
      `when ${runs} random requests are sent, then frames are equal, and the ledger has the server's own counts`,
      () =>
        Effect.gen(function* () {
          const { secret, tenant } = yield* newKey()
          const found = { equal: 0, deliberate: 0, different: 0, counted: 0, miscounted: 0 }
          const wrong: Array<string> = []
          const ledger = { input: 0n, output: 0n }
          const isNew = (yield* Effect.flatMap(RealOllama, minorVersion)) >= 30
          for (const one of fc.sample(anyCase, { numRuns: runs, seed })) {
            // Newer ones cut the rarest of equally likely tokens first, which is the end of the tests' models: they never end.
            if (isNew && !isBounded(one)) continue
            const server = yield* direct(one)
            const answer = yield* call(one.path, { secret, body: one.body })
            const gateway: Said = { ...answer, contentType: answer.headers.get("content-type") ?? "" }
            const verdict = compare(one.path, server, gateway)
            found[verdict.as] += 1
            if (verdict.as === "different") wrong.push(JSON.stringify({ ...one, ...verdict }))
            const row = yield* auditRow(answer.headers.get("x-request-id"))
            ledger.input += row?.tokens_in ?? 0n
            ledger.output += row?.tokens_out ?? 0n
            const counts = server.status === 200 ? countsOf(one.path, server) : undefined
            if (counts === undefined || answer.status !== 200) continue
            found.counted += 1
            const [input, output] = [Number(row?.tokens_in), Number(row?.tokens_out)]
            if (input === counts.input && output === counts.output) continue
            found.miscounted += 1
            wrong.push(
              JSON.stringify({ ...one, counts, charged: { input, output, source: row?.usage_source } })
            )
          }
          const usage = yield* Effect.flatMap(Registry, (registry) => registry.usage(tenant, "total"))
          const { counted, deliberate, different, equal, miscounted } = found
          yield* Console.log(
            `conformance: ${runs} requests (seed ${seed}): ${equal} equal, ${deliberate} deliberately different, ` +
              `${different} different; ledger: ${counted - miscounted} of ${counted} as the server counted`
          )
          assert.deepStrictEqual(
            [BigInt(usage.tokensIn), BigInt(usage.tokensOut)],
            [ledger.input, ledger.output],
            "the ledger is the sum of the audit"
          )
          yield* Effect.promise(() => mkdir(path.dirname(report), { recursive: true }))
          yield* Effect.promise(() => writeFile(report, `${wrong.join("\n")}\n`))
          assert.deepStrictEqual(
            wrong.slice(0, 5).map((line) => line.slice(0, 1000)),
            [],
            `all of them: ${report}`
          )
        })
    )
  }
)
