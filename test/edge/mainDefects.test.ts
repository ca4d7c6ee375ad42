/** An error in a callback that nobody handles, in the process of a gateway. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { mintKey } from "../../src/domain/Key.ts"
import { eventually } from "../support/Gateway.ts"
import { makeGatewayProcess } from "../support/GatewayProcess.ts"

const secret = mintKey("tg_")

/** A value that Postgres refuses is quoted in the message, its row in `detail`. */
const error = `Object.assign(new Error("invalid input: A prompt"), {
  name: ${JSON.stringify(secret)}, severity: "ERROR", code: "22P02", detail: "A prompt", cause: new Error(${JSON.stringify(secret)})
})`

const ways = {
  "is thrown": `throw ${error}`,
  "rejects a promise": `Promise.reject(${error})`,
  "quotes the text that is no JSON": `JSON.parse("A prompt")`,
  "is no object": `throw ${JSON.stringify(`${secret} is not allowed`)}`
}

describe("an error that nobody handles", () => {
  it.live.each(Object.entries(ways))(
    "when it %s, then the process ends with code 1 and a line that quotes no row, no text and no key",
    ([, statement]) =>
      Effect.gen(function* () {
        const program = `process.on("SIGUSR2", () => setImmediate(() => { ${statement} }))`
        const gateway = yield* makeGatewayProcess({
          NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(program)}`,
          NODE_ENV: "production",
          DATABASE_URL: "postgres://127.0.0.1:1/none",
          REDIS_URL: "redis://127.0.0.1:1",
          BACKEND_URL: "http://127.0.0.1:1"
        })
        gateway.signal("SIGUSR2")
        assert.strictEqual(yield* gateway.ended, 1)
        const printed = yield* eventually(Effect.sync(gateway.printed), (text) => text.includes("defect"))
        assert.include(printed, "tollgate: stopped by a defect")
        assert.notInclude(printed, "A prompt")
        assert.notInclude(printed, secret.slice(12))
      }).pipe(Effect.scoped)
  )
})
