/** docs/hardening.md, U23 and U24: readiness causes no load on the backend, and metrics are for this machine only. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Fake, Gateway, layerGateway } from "../support/Gateway.ts"
import { rawRequest, talk } from "../support/RawClient.ts"
import { inWorld } from "../support/testWith.ts"

inWorld(layerGateway())("without a key", (test) => {
  test("when many ask whether it is ready, then the backend is asked once a second at most (U23)", function* () {
    const [{ url }, fake] = [yield* Gateway, yield* Fake]
    const probes = () => fake.lookups.filter(({ path }) => path === "/api/version").length
    const [before, started] = [probes(), performance.now()]
    for (let round = 0; round < 10; round += 1) {
      const talks = yield* Effect.forEach(
        Array.from({ length: 30 }),
        () => talk(url, rawRequest("GET", "/readyz")),
        { concurrency: "unbounded" }
      )
      for (const { responses } of talks) assert.strictEqual(responses[0]?.status, 200)
      yield* Effect.sleep("150 millis")
    }
    const seconds = (performance.now() - started) / 1000
    assert.isAtLeast(probes() - before, 1)
    assert.isAtMost(probes() - before, Math.ceil(seconds) + 1)
  })
})
