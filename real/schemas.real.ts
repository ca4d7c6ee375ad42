/**
 * Random schemas through the gateway to a real server: an admitted schema is answered with 200, a refused one with 400, and
 * the server's processes stay the same. `SCHEMAS=10000` is the long run, SCHEMAS_SEED chooses other schemas.
 */
import { assert, layer } from "@effect/vitest"
import { Console, Effect, Result } from "effect"
import { admitSchema } from "../src/backend/ollama/guards/schemas.ts"
import type { JsonObject } from "../src/domain/Inference.ts"
import { Random } from "../test/fuzz/Random.ts"
import { call, newKey } from "../test/support/Gateway.ts"
import { RandomSchemas } from "../test/support/randomSchemas.ts"
import { layerOwnGateway } from "./RealGateway.ts"
import { OwnOllama } from "./RealOllama.ts"

const count = Number(process.env["SCHEMAS"] ?? "1000")
const seed = Number(process.env["SCHEMAS_SEED"] ?? "1")

/** More failures than this say nothing new. */
const enough = 5

/** Both surfaces, by turns. */
const requestFor = (format: JsonObject, random: Random) => {
  const [tokens, choice] = [1 + random.int(6), random.int(1000)]
  return random.chance(2)
    ? {
        path: "/api/generate",
        body: {
          model: "plain",
          prompt: "x",
          stream: false,
          format,
          options: { num_predict: tokens, seed: choice }
        }
      }
    : {
        path: "/v1/chat/completions",
        body: {
          model: "plain",
          messages: [{ role: "user", content: "x" }],
          max_tokens: tokens,
          seed: choice,
          response_format: { type: "json_schema", json_schema: { name: "x", schema: format } }
        }
      }
}

layer(layerOwnGateway(), { excludeTestServices: true, timeout: 600_000 })("random schemas", (it) => {
  it.effect(
    `when ${count} random schemas are asked (seed ${seed}), then each admitted one is answered and the server lives`,
    () =>
      Effect.gen(function* () {
        const server = yield* OwnOllama
        // A key may be refused a hundred times a second.
        const keys = yield* Effect.replicateEffect(newKey(), 8)
        const secretFor = (i: number) => keys[i % keys.length]?.secret ?? ""
        const random = new Random(seed)
        const schemas = new RandomSchemas(random)
        const found = { plain: 0, relaxed: 0, refused: 0 }
        const wrong: Array<string> = []
        let slowestMs = 0
        const processes = () => [server.pid(), ...server.runners()].join()
        const warm = requestFor({ type: "string" }, random)
        assert.strictEqual((yield* call(warm.path, { secret: secretFor(0), body: warm.body })).status, 200)
        const before = processes()
        const began = performance.now()
        for (let i = 0; i < count && wrong.length < enough; i += 1) {
          const schema = schemas.next()
          const admitted = admitSchema(schema, "format")
          const kind = Result.isFailure(admitted)
            ? "refused"
            : admitted.success.relaxed.length === 0
              ? "plain"
              : "relaxed"
          found[kind] += 1
          const { body, path } = requestFor(schema, random)
          const at = performance.now()
          const answer = yield* call(path, { secret: secretFor(i), body })
          slowestMs = Math.max(slowestMs, Math.round(performance.now() - at))
          const expected = kind === "refused" ? 400 : 200
          if (answer.status === expected && processes() === before) continue
          const what = processes() === before ? `${answer.status} ${answer.text}` : "another process"
          wrong.push(`schema ${i}, ${kind}: ${what} ${JSON.stringify(schema)}`.slice(0, 2000))
        }
        const seconds = Math.round((performance.now() - began) / 1000)
        yield* Console.log(
          `schemas: ${count} random ones (seed ${seed}) in ${seconds} s: ${found.plain + found.relaxed} admitted ` +
            `(${found.relaxed} relaxed), ${found.refused} refused, slowest ${slowestMs} ms`
        )
        assert.deepStrictEqual(wrong, [])
        // A suite whose schemas are all refused would show nothing.
        assert.isAbove(found.plain, count / 20)
        assert.isAbove(found.relaxed, count / 20)
      }),
    3_600_000
  )
})
