/** docs/hardening.md, U23 and U24: readiness causes no load on the backend, and metrics are for this machine only. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Fake, Gateway, layerGateway } from "../support/Gateway.ts"
import { rawRequest, talk } from "../support/RawClient.ts"
import { assertRefusal } from "./attacks/checks.ts"

layer(layerGateway(), { excludeTestServices: true })("without a key", (it) => {
  it.effect("when many ask whether it is ready, then the backend is asked once a second at most (U23)", () =>
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

  it.effect(
    "when a request for metrics came through a proxy or names another host, then the path is blocked (U24)",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Gateway
        const ask = (host: string, ...headers: ReadonlyArray<string>) =>
          Effect.map(
            talk(
              url,
              `GET /metrics HTTP/1.1\r\n${[`Host: ${host}`, "Connection: close", ...headers].join("\r\n")}\r\n\r\n`
            ),
            ({ responses }) => responses[0]
          )
        assert.strictEqual((yield* ask("127.0.0.1"))?.status, 200)
        assert.strictEqual((yield* ask("localhost:8080", "User-Agent: Prometheus/3.0"))?.status, 200)
        for (const header of [
          "X-Forwarded-For: 127.0.0.1",
          "x-forwarded-for:",
          "Forwarded: for=127.0.0.1",
          "X-Real-IP: ::1",
          "X-Forwarded-Host: localhost",
          "Via: 1.1 cache",
          "CF-Connecting-IP: 127.0.0.1",
          "True-Client-IP: 127.0.0.1",
          "X-Envoy-External-Address: 127.0.0.1"
        ])
          assertRefusal(yield* ask("127.0.0.1", header), 403, header)
        for (const host of ["gateway", "rebound.example:8080", "10.0.0.1"])
          assertRefusal(yield* ask(host), 403, host)
      })
  )
})
