/** hardening U23, U24: what operators ask without a key is no amplifier, and not for everybody. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Fake, Gateway, layerGateway } from "../support/Gateway.ts"
import { rawRequest, talk } from "../support/RawClient.ts"
import { assertRefusal } from "./attacks/checks.ts"

layer(layerGateway(), { excludeTestServices: true, timeout: 60_000 })("without a key", (it) => {
  it.effect("U23 however many ask whether it is ready, the backend is asked once a second at most", () =>
    Effect.gen(function* () {
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
  )

  it.effect("U24 metrics are for this machine: whatever came through a proxy is a blocked path", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const ask = (...headers: ReadonlyArray<string>) =>
        Effect.map(talk(url, rawRequest("GET", "/metrics", headers)), ({ responses }) => responses[0])
      assert.strictEqual((yield* ask())?.status, 200)
      for (const header of [
        "X-Forwarded-For: 127.0.0.1",
        "x-forwarded-for:",
        "Forwarded: for=127.0.0.1",
        "X-Real-IP: ::1",
        "X-Forwarded-Host: localhost"
      ])
        assertRefusal(yield* ask(header), 403, header)
    })
  )
})
