/** What a scraper on this machine sees of a gateway that has done something. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { call, eventually, Fake, hello, layerGateway, newKey, valueOf } from "../support/Gateway.ts"
import { atMost } from "../support/wait.ts"
import { inWorld } from "../support/testWith.ts"

inWorld(layerGateway())("metrics of the whole gateway", (test) => {
  test("when requests were served, then every metric of the contract is there with its counts", function* () {
    const { secret, tenant, prefix } = yield* newKey()
    const served = yield* eventually(
      call("/api/chat", { secret, body: hello({ stream: false }) }),
      ({ status }) => status === 200
    )
    assert.strictEqual(served.status, 200)
    assert.strictEqual(
      (yield* call("/api/chat", { secret, body: { ...hello(), model: "made-up" } })).status,
      403
    )
    assert.strictEqual((yield* call("/api/chat", { body: hello() })).status, 401)
    yield* Effect.flatMap(Registry, (registry) => registry.revokeKey(prefix))
    const { text } = yield* eventually(
      call("/metrics"),
      (page) => (valueOf(page.text, "tollgate_revocation_seconds_count") ?? 0) >= 1
    )
    const labels = `tenant="${tenant}",model="m:latest"`
    assert.strictEqual(valueOf(text, `gateway_requests_total{${labels},status="200"}`), 1)
    assert.strictEqual(valueOf(text, `gateway_tokens_total{${labels},direction="in"}`), 7)
    assert.strictEqual(valueOf(text, `gateway_tokens_total{${labels},direction="out"}`), 3)
    assert.strictEqual(valueOf(text, `gateway_request_duration_seconds_count{${labels}}`), 1)
    assert.strictEqual(
      valueOf(text, `gateway_requests_total{tenant="${tenant}",model="none",status="403"}`),
      1
    )
    assert.strictEqual(valueOf(text, `gateway_requests_total{tenant="none",model="none",status="401"}`), 1)
    assert.strictEqual(valueOf(text, "tollgate_breaker_state"), 0)
    for (const dependency of ["database", "cache", "backend"]) {
      assert.strictEqual(valueOf(text, `tollgate_ready{dependency="${dependency}"}`), 1, dependency)
    }
    assert.isAbove(valueOf(text, "tollgate_discovery_models") ?? 0, 0)
    assert.isBelow(valueOf(text, "tollgate_discovery_age_seconds") ?? 99, atMost(10))
    assert.strictEqual(valueOf(text, "tollgate_open_leases"), 0)
    assert.strictEqual(valueOf(text, "tollgate_audit_backlog"), 0)
    assert.strictEqual(valueOf(text, "tollgate_audit_lag_seconds"), 0)
    assert.strictEqual(valueOf(text, `tollgate_backend_first_frame_seconds_count{model="m:latest"}`), 1)
    assert.strictEqual(valueOf(text, `tollgate_refusals_total{tenant="${tenant}",reason="forbidden"}`), 1)
    assert.strictEqual(valueOf(text, `tollgate_refusals_total{tenant="none",reason="unauthorized"}`), 1)
    assert.strictEqual(valueOf(text, "tollgate_revocation_seconds_count"), 1)
    assert.isBelow(valueOf(text, "tollgate_revocation_seconds_sum") ?? 99, atMost(1))
    assert.isAbove(valueOf(text, "process_resident_memory_bytes") ?? 0, 0)
    assert.notInclude(text, "made-up")
    assert.notInclude(text, prefix)
  })
})

inWorld(layerGateway({ MODEL_DISCOVERY_CACHE_TTL_S: "1" }))(
  "metrics of a gateway whose model server is gone",
  (test) => {
    test("when the model server is gone, then metrics say that it is not ready and that no model is in force", function* () {
      const fake = yield* Fake
      yield* eventually(call("/metrics"), ({ text }) => valueOf(text, "tollgate_discovery_models") !== 0)
      fake.onLookup({ does: "reset" })
      const { text } = yield* eventually(
        call("/metrics"),
        (page) =>
          valueOf(page.text, `tollgate_ready{dependency="backend"}`) === 0 &&
          valueOf(page.text, "tollgate_discovery_models") === 0
      )
      assert.strictEqual(valueOf(text, `tollgate_ready{dependency="backend"}`), 0)
      assert.strictEqual(valueOf(text, `tollgate_ready{dependency="database"}`), 1)
      assert.strictEqual(valueOf(text, "tollgate_discovery_models"), 0)
      assert.isAbove(valueOf(text, "tollgate_discovery_age_seconds") ?? 0, 1)
      const { secret } = yield* newKey()
      for (const path of ["/api/tags", "/v1/models"]) {
        const list = yield* call(path, { secret })
        assert.deepStrictEqual([list.status, list.headers.get("x-model-list")], [200, "expired"], path)
      }
      const local = yield* call("/readyz")
      assert.strictEqual(local.status, 503)
      assert.strictEqual(
        local.headers.get("x-readiness"),
        "database=ok, cache=ok, backend=down, models=expired"
      )
      const proxied = yield* call("/readyz", { headers: { "x-forwarded-for": "127.0.0.1" } })
      assert.deepStrictEqual([proxied.status, proxied.headers.get("x-readiness")], [503, null])
      assert.deepStrictEqual(
        Object.keys(JSON.parse(proxied.text)).sort(),
        Object.keys(JSON.parse(local.text)).sort()
      )
    })
  }
)
