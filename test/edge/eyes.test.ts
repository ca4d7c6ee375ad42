/** What the people on call see: log lines, traces, and a dashboard and alerts that ask only for what is there. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it, layer } from "@effect/vitest"
import { Cause, Effect, Layer, Logger, References, Schema } from "effect"
import { vi } from "vitest"
import { Registry } from "../../src/admin/Registry.ts"
import { jsonLine } from "../../src/observability/logging.ts"
import { layerTracing } from "../../src/observability/tracing.ts"
import { Collector, layerCollector } from "../support/Collector.ts"
import { call, eventually, hello, layerGateway, newKey } from "../support/Gateway.ts"

const live = { excludeTestServices: true } as const

const root = path.resolve(import.meta.dirname, "../..")
const deployed = ["deploy/grafana/tollgate.json", "deploy/prometheus/alerts.yaml"].map(
  (file) => [file, readFileSync(path.join(root, file), "utf8").replaceAll(String.raw`\"`, '"')] as const
)

/** The given addresses are not used: production only wants them to be named. */
const production = {
  NODE_ENV: "production",
  LOG_LEVEL: "info",
  DATABASE_URL: "postgres://unused",
  REDIS_URL: "redis://unused",
  BACKEND_URL: "http://unused",
  // The line has metrics only where there is one.
  BACKEND_MAX_CONCURRENT: "8"
}

const Line = Schema.fromJsonString(Schema.Record(Schema.String, Schema.Json))

layer(layerGateway(production), live)("in production", (it) => {
  it.effect(
    "when a request ends, then it is one line of JSON with its id, its key's prefix, and its cost",
    () =>
      Effect.gen(function* () {
        const { secret, prefix, tenant } = yield* newKey()
        const printed: Array<string> = []
        const spy = vi.spyOn(console, "log").mockImplementation((line) => void printed.push(String(line)))
        yield* Effect.addFinalizer(() => Effect.sync(() => spy.mockRestore()))
        const answers = [
          yield* call("/api/chat", { secret, body: hello() }),
          yield* call("/v1/models", { secret: `${secret.slice(0, -1)}_` }),
          yield* call("/api/pull", { secret, body: {} }),
          yield* call("/healthz")
        ]
        const lines = yield* Effect.forEach(printed, (line) => Schema.decodeEffect(Line)(line))
        const requests = lines.filter((line) => line["message"] === "request")
        assert.deepStrictEqual(
          requests.map((line) => [line["request_id"], line["status"]]),
          answers.slice(0, 3).map(({ headers, status }) => [headers.get("x-request-id"), status])
        )
        const { time, latency_ms, request_id: _, ...first } = requests[0] ?? {}
        assert.deepStrictEqual(first, {
          level: "info",
          message: "request",
          key: prefix,
          tenant,
          method: "POST",
          endpoint: "/api/chat",
          model: "m:latest",
          status: 200,
          tokens_in: 7,
          tokens_out: 3
        })
        assert.isNumber(latency_ms)
        assert.isFalse(Number.isNaN(Date.parse(String(time))))
        assert.notInclude(printed.join("\n"), secret.slice(12))
        assert.notInclude(printed.join("\n"), "Hello")
      }).pipe(Effect.scoped)
  )

  it.effect("when dashboard and alerts name a metric or a label, then it exists", () =>
    Effect.gen(function* () {
      const { secret, tenant } = yield* newKey()
      yield* (yield* Registry).setTenantBudgets(tenant, { total: 1_000_000 })
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
  )
})

it.effect(
  "when a line is logged, then it is flat JSON with fields, annotations and causes, and no text breaks it",
  () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const capture = Logger.make<unknown, void>((options) => void lines.push(jsonLine.log(options)))
      const circular: { self?: unknown } = {}
      circular.self = circular
      yield* Effect.gen(function* () {
        yield* Effect.annotateLogs(Effect.logWarning("late", { n: 1n }), "request_id", "r-1")
        yield* Effect.logError("defect", Cause.die(new Error("broken")))
        yield* Effect.logInfo("odd", { circular })
        yield* Effect.logInfo("two\nlines")
      }).pipe(
        Effect.provide(Logger.layer([capture])),
        Effect.provideService(References.MinimumLogLevel, "Info")
      )
      const [late, defect, odd, two] = yield* Effect.forEach(lines, (line) => Schema.decodeEffect(Line)(line))
      assert.deepInclude(late, { level: "warn", message: "late", n: "1", request_id: "r-1" })
      assert.include(String(defect?.["cause"]), "eyes.test.ts")
      assert.deepInclude(odd, { message: "odd" })
      assert.strictEqual(two?.["message"], "two\nlines")
      assert.isTrue(lines.every((line) => !line.includes("\n")))
    })
)

const layerTraced = layerGateway().pipe(
  Layer.provideMerge(
    Layer.unwrap(
      Effect.map(Collector, ({ url }) => layerTracing({ otlpEndpoint: new URL(url), otlpSampleRatio: 1 }))
    )
  ),
  Layer.provideMerge(layerCollector)
)

layer(layerTraced, live)("with a collector", (it) => {
  it.effect(
    "when a request is served, then it is a trace with its steps and its audit facts, without its prompt",
    () =>
      Effect.gen(function* () {
        const collector = yield* Collector
        const { secret, prefix } = yield* newKey()
        const body = hello({ messages: [{ role: "user", content: "marker-prompt" }] })
        const { headers } = yield* call("/api/chat", { secret, body })
        yield* call("/api/tags/marker-path", { secret })
        yield* eventually(
          Effect.sync(() => collector.bodies.join("\n")),
          (text) => text.includes(String(headers.get("x-request-id"))) && text.includes("blocked path")
        )
        const text = collector.bodies.join("\n")
        assert.isTrue(collector.bodies.every((sent) => sent.startsWith("/v1/traces ")))
        for (const part of [
          "chat m:latest",
          "authenticate",
          "reserve",
          "call model server",
          "blocked path",
          prefix,
          "m:latest"
        ])
          assert.include(text, `"${part}"`)
        assert.include(text, String(headers.get("x-request-id")))
        for (const part of ["marker-prompt", "marker-path", secret.slice(12), "Hello"])
          assert.notInclude(text, part)
      })
  )
})
