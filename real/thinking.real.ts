/**
 * `think` and `format` in one request. The server thinks in a first run without the format, then runs again
 * with it, and counts only the second run. From 0.33.2 or so on it counts both, and the prompt once. What is charged has to be all of it, once.
 */
import { assert, layer } from "@effect/vitest"
import { Console, Effect, Schema } from "effect"
import { auditRow, call, newKey } from "../test/support/Gateway.ts"
import { framesOf, type Said } from "./conformance/compare.ts"
import { layerRealGateway } from "./RealGateway.ts"
import { minorVersion, RealOllama } from "./RealOllama.ts"

const schema = {
  type: "object",
  properties: { name: { type: "string", maxLength: 8 }, ok: { type: "boolean" } },
  required: ["name", "ok"]
}

const Frame = Schema.Struct({
  message: Schema.Struct({ content: Schema.String, thinking: Schema.optionalKey(Schema.String) }),
  done: Schema.Boolean,
  done_reason: Schema.optionalKey(Schema.String),
  prompt_eval_count: Schema.optionalKey(Schema.Int),
  eval_count: Schema.optionalKey(Schema.Int)
})
const readFrames = Schema.decodeUnknownEffect(Schema.Array(Frame))

const direct = Effect.fnUntraced(function* (body: unknown) {
  const { url } = yield* RealOllama
  const said = yield* Effect.promise(async (signal): Promise<Said> => {
    const answer = await fetch(new URL("/api/chat", url), {
      method: "POST",
      body: JSON.stringify(body),
      signal
    })
    return { status: answer.status, contentType: "application/x-ndjson", text: await answer.text() }
  })
  assert.strictEqual(said.status, 200, said.text)
  return yield* readFrames(framesOf(said))
})

/** What an answer says, and how it ends. */
const gist = (frames: ReadonlyArray<typeof Frame.Type>) => ({
  thinking: frames.map(({ message }) => message.thinking ?? "").join(""),
  content: frames.map(({ message }) => message.content).join(""),
  reason: frames.at(-1)?.done_reason
})

layer(layerRealGateway(), { excludeTestServices: true, timeout: 600_000 })("thinking and a format", (it) => {
  it.effect("when the server makes two runs, then both are charged, each token once", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const found = { one: 0, two: 0 }
      const countsBoth = (yield* Effect.flatMap(RealOllama, minorVersion)) >= 33
      for (let seed = 1; seed <= 40; seed += 1) {
        const body = {
          model: "think",
          messages: [{ role: "user", content: "Hello" }],
          think: true,
          options: { seed, num_predict: 20 + 10 * (seed % 6) }
        }
        const formatted = { ...body, format: schema }
        const server = yield* direct(formatted)
        const answer = yield* call("/api/chat", { secret, body: formatted })
        const row = yield* auditRow(answer.headers.get("x-request-id"))
        const gateway = yield* readFrames(
          framesOf({ status: answer.status, contentType: "application/x-ndjson", text: answer.text })
        )
        assert.deepStrictEqual(gist(gateway), gist(server), `seed ${seed}`)
        const last = server.at(-1)
        const [read, written] = [last?.prompt_eval_count ?? 0, last?.eval_count ?? 0]
        const { content, thinking } = gist(server)
        const two = thinking !== "" && content !== ""
        found[two ? "two" : "one"] += 1
        // The first run alone: without a format the server counts it, up to the first word of an answer.
        const alone = two ? yield* direct(body) : []
        const thought = alone.filter(({ message }) => (message.thinking ?? "") !== "").length
        if (two) assert.strictEqual(gist(alone).thinking, thinking, "the first run is that without a format")
        assert.deepStrictEqual(
          {
            input: Number(row?.tokens_in),
            output: Number(row?.tokens_out),
            source: row?.usage_source
          },
          two && !countsBoth
            ? { input: read - thought, output: written + thought, source: "counted" }
            : { input: read, output: written, source: "backend" },
          `seed ${seed}`
        )
      }
      yield* Console.log(`thinking and a format: ${found.two} answers in two runs, ${found.one} in one`)
    })
  )
})
