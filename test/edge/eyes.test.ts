/** What the people on call see: log lines, traces, and a dashboard and alerts that ask only for what is there. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Registry } from "../../src/admin/Registry.ts"
import { call, eventually, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"

const root = path.resolve(import.meta.dirname, "../..")
const deployed = ["deploy/grafana/tollgate.json", "deploy/prometheus/alerts.yaml"].map(
  (file) => [file, readFileSync(path.join(root, file), "utf8").replaceAll(String.raw`\"`, '"')] as const
)

// Some metrics are only where these are set.
const bounded = { BACKEND_MAX_CONCURRENT: "8", BACKEND_MAX_LOADED_MODELS: "2" }

inWorld(layerGateway(bounded))("dashboard and alerts", (test) => {
  test("when dashboard and alerts name a metric or a label, then it exists", function* () {
    const { secret, tenant } = yield* newKey()
    const registry = yield* Registry
    yield* registry.changeTenant(tenant, { budgetTotal: 1_000_000 })
    yield* call("/api/chat", { secret, body: hello() })
    yield* call("/api/chat", { secret, body: hello({ model: "not-there" }) })
    const { text } = yield* eventually(call("/metrics"), (metrics) =>
      metrics.text.includes("tollgate_tenant_budget_tokens{")
    )
    const labels = new Map<string, Set<string>>()
    for (const line of text.split("\n")) {
      const [, name, inside = ""] = /^([a-z_0-9]+)(?:\{(.*)\})? /.exec(line) ?? []
      if (name === undefined) continue
      const known = labels.get(name) ?? new Set(["instance", "job"])
      for (const [, label = ""] of inside.matchAll(/([a-z_]+)="/g)) known.add(label)
      labels.set(name, known)
    }
    for (const [file, content] of deployed) {
      const asked = [
        ...content.matchAll(/\b((?:gateway|tollgate|process|nodejs)_[a-z0-9_]+)(?:\{([^}]*)\})?/g)
      ]
      assert.isAbove(asked.length, 8, file)
      for (const [, name = "", inside = ""] of asked) {
        assert.isTrue(labels.has(name), `${file} asks for ${name}`)
        for (const [, label = ""] of inside.matchAll(/([a-z_]+)=~?"/g))
          assert.isTrue(labels.get(name)?.has(label), `${file} asks ${name} for ${label}`)
      }
    }
    // And nothing of ours goes unseen.
    const all = deployed.map(([, content]) => content).join("\n")
    for (const name of labels.keys()) {
      if (/^(?:gateway|tollgate)_/.test(name) && !/_(?:sum|count)$/.test(name)) assert.include(all, name)
    }
  })
})
