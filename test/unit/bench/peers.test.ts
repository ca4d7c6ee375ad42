/** Peers of the benchmark: a program that is given by its path is configured, asked and taken in, or left out with a reason. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { startPeer } from "../../../bench/gateway/peers.ts"
import { bifrost, configOf } from "../../../bench/gateway/peers/bifrost.ts"
import { file, serve } from "../../../bench/gateway/processes.ts"
import { bodyOf, table } from "../../../bench/gateway/works.ts"

const standIn = new URL("standIn.mjs", import.meta.url).pathname

const ask = (url: string, body: string, key: string) =>
  Effect.promise(async () => {
    const response = await fetch(url + table.json32.path, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body
    })
    return { status: response.status, text: await response.text() }
  })

it.live(
  "when a peer's program is given, then it runs with keys and limits and answers from the backend",
  () =>
    Effect.gen(function* () {
      const backend = yield* serve("0", [file("stub.ts")], {})
      const lines: Array<string> = []
      const contender = yield* startPeer(
        bifrost,
        standIn,
        { backendUrl: backend.url, redisUrl: "" },
        (line) => Effect.sync(() => void lines.push(line))
      )
      assert.match(lines.join("\n"), /^bifrost: virtual keys.* An unknown key: 401\.$/)
      const whole = yield* ask(contender.url, bodyOf(table.json32, contender.prefix), contender.keys.good)
      assert.strictEqual(JSON.parse(whole.text).choices[0].message.content, " word word word")
      const stream = yield* ask(contender.url, bodyOf(table.stream32, contender.prefix), contender.keys.good)
      assert.strictEqual(stream.text.split('"delta":{"role":"assistant","content":" word"}').length, 4)
      assert.match(stream.text, /data: \[DONE\]\n\n$/)
    }).pipe(Effect.scoped)
)

it.live(
  "when a peer does not answer its own key with 200, then it is left out and the answer is the reason",
  () =>
    Effect.gen(function* () {
      const backend = yield* serve("0", [file("stub.ts")], {})
      const failing = {
        ...bifrost,
        start: () =>
          Effect.map(bifrost.start(standIn, { backendUrl: backend.url, redisUrl: "" }), (contender) => ({
            ...contender,
            keys: { ...contender.keys, good: "sk-bf-other" }
          }))
      }
      const reason = yield* Effect.flip(
        startPeer(failing, undefined, { backendUrl: backend.url, redisUrl: "" }, () => Effect.void)
      )
      assert.strictEqual(reason, "answered 401 to its own key, asked for an object: {}")
    }).pipe(Effect.scoped)
)

it("when Bifrost is configured, then keys, limits, budgets and a row for each request are on", () => {
  const { client, governance, logs_store } = configOf("http://127.0.0.1:1", "/home")
  assert.isTrue(client.enforce_auth_on_inference && client.enable_logging && logs_store.enabled)
  const [good] = governance.virtual_keys
  assert.isTrue(governance.rate_limits.some(({ id }) => id === good?.rate_limit_id))
  assert.isTrue(governance.budgets.every(({ virtual_key_id }) => virtual_key_id === good?.id))
  // Version 1.4 finds the budgets from the key.
  const ids = governance.budgets.map(({ id }) => id)
  assert.deepStrictEqual([good?.budget_id, good?.provider_configs[0]?.budget_id], ids)
})
