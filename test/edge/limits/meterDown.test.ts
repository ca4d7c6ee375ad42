/** A Meter that dies under a running stream: what the client reads, and what it is charged. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Twins, layerTwins } from "../../support/Twins.ts"
import { inWorld } from "../../support/testWith.ts"
import { hello } from "../../support/Gateway.ts"
import { ask } from "../../support/posting.ts"

const frames = 2000

inWorld(layerTwins)("a stream whose Meter dies", (test) => {
  for (const [path, stream] of [
    ["/api/chat", true],
    ["/v1/chat/completions", true],
    ["/api/chat", false]
  ] as const) {
    test(`when its hold is used up on ${path}, stream ${stream}, then it is ended in the words of its surface`, function* () {
      const { audit, newKey, renewals, setDown, speak, url } = yield* Twins
      const secret = newKey({ total: 10_000 })
      // The first request brings the total into the counters, and shows that the model speaks as it generates.
      speak(20, Effect.void)
      const chat = ask(new URL(path, url), { secret, body: hello({ stream }) })
      yield* chat
      speak(frames, setDown.Limiter(true))
      const asked = renewals()
      const answer = yield* chat
      yield* setDown.Limiter(false)
      // Near the end of the hold, and at its end.
      assert.strictEqual(renewals() - asked, 2)
      if (stream) {
        assert.strictEqual(answer.status, 200)
        assert.strictEqual(answer.text.match(/"content":"word "/g)?.length, 256)
        const last = answer.text.trim().split("\n").at(-1) ?? ""
        assert.include(last, "service temporarily unavailable")
        assert.notInclude(answer.text, "[DONE]")
        assert.notInclude(answer.text, `"done":true`)
      } else assert.strictEqual(answer.status, 503)
      const row = [...audit.tables.audit.values()].at(-1)
      assert.deepInclude(row, { status: 503, tokens_in: 10, tokens_out: 256, usage_source: "counted" })
    })
  }
})
