/**
 * First turns of coding agents before a real server. Its model calls the shell of the agent, then it goes on in words: the
 * ledger has what the server counted.
 */
import { createServer, request } from "node:http"
import { assert, layer } from "@effect/vitest"
import { Console, Context, Effect, Layer, Option, Schema } from "effect"
import { Registry } from "../src/admin/Registry.ts"
import { call, eventually, layerGatewayBefore, newKey } from "../test/support/Gateway.ts"
import { listening } from "../test/support/listening.ts"
import { layerTestPostgres } from "../test/support/TestPostgres.ts"
import { layerTestRedis } from "../test/support/TestRedis.ts"
import { agents, runAgent } from "./agents/runAgent.ts"
import { layerOwnOllama, OwnOllama } from "./RealOllama.ts"

const readFrame = Schema.decodeUnknownOption(
  Schema.fromJsonString(
    Schema.Struct({
      message: Schema.Struct({ tool_calls: Schema.optionalKey(Schema.Array(Schema.Unknown)) }),
      prompt_eval_count: Schema.optionalKey(Schema.Int),
      eval_count: Schema.optionalKey(Schema.Int)
    })
  )
)

/** What the server said since it was last asked. */
class Said extends Context.Service<
  Said,
  { readonly url: URL; readonly take: () => { calls: number; tokensIn: number; tokensOut: number } }
>()("test/Said") {}

/** Passes everything on to the server, and reads along. */
const layerSaid = Layer.effect(
  Said,
  Effect.gen(function* () {
    const { url } = yield* OwnOllama
    const lines: Array<string> = []
    const proxy = createServer((asked, answer) => {
      const { headers, method = "GET", url: path = "/" } = asked
      const forwarded = request(new URL(path, url), { method, headers }, (said) => {
        let text = ""
        said.setEncoding("utf8").on("data", (piece: string) => (text += piece))
        said.once("end", () => lines.push(...text.split("\n")))
        answer.writeHead(said.statusCode ?? 502, said.headers)
        said.pipe(answer)
      })
      forwarded.once("error", () => answer.destroy())
      answer.once("close", () => forwarded.destroy())
      asked.pipe(forwarded)
    })
    return {
      url: new URL(yield* listening(proxy)),
      take: () => {
        const said = { calls: 0, tokensIn: 0, tokensOut: 0 }
        for (const frame of lines.splice(0).flatMap((line) => Option.toArray(readFrame(line)))) {
          said.calls += frame.message.tool_calls?.length ?? 0
          said.tokensIn += frame.prompt_eval_count ?? 0
          said.tokensOut += frame.eval_count ?? 0
        }
        return said
      }
    }
  })
)

const layerTurns = Layer.unwrap(
  Effect.map(Said, ({ url }) => layerGatewayBefore(url, { EXTRA_SURFACES: "responses,messages" }))
).pipe(
  Layer.provideMerge(layerSaid),
  Layer.provideMerge(layerOwnOllama()),
  Layer.provideMerge(layerTestPostgres()),
  Layer.provideMerge(Layer.fresh(layerTestRedis))
)

layer(layerTurns, { excludeTestServices: true, timeout: 600_000 })(
  "first turns before a real server",
  (it) => {
    for (const name of agents.filter((one) => one === "codex" || one === "claude"))
      it.effect(`when ${name} takes its first turn, then the ledger has the server's counts`, () =>
        Effect.gen(function* () {
          const [server, { secret, tenant }] = [yield* Said, yield* newKey()]
          yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes(`"${name}:latest"`))
          server.take()
          const ran = yield* runAgent(name, { secret, model: name })
          const { calls, ...counted } = server.take()
          yield* Console.log(
            `${name}: ${calls} calls, ${counted.tokensIn} tokens in, ${counted.tokensOut} out`
          )
          assert.strictEqual(ran.code, 0, ran.said)
          assert.strictEqual(calls, 1, ran.said)
          assert.isAbove(counted.tokensOut, 0)
          const { tokensIn, tokensOut } = yield* Effect.flatMap(Registry, ({ usage }) =>
            usage(tenant, "total")
          )
          assert.deepStrictEqual({ tokensIn, tokensOut }, counted)
        })
      )
  }
)
