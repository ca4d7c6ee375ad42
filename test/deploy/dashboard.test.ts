/** Each query of the dashboard, asked of a real Prometheus that scrapes a real gateway. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { call, eventually, Gateway, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { makePrometheus } from "../support/Prometheus.ts"
import { inWorld } from "../support/testWith.ts"

const Dashboard = Schema.fromJsonString(
  Schema.Struct({
    panels: Schema.Array(
      Schema.Struct({
        title: Schema.String,
        targets: Schema.optional(
          Schema.Array(Schema.Struct({ expr: Schema.String, legendFormat: Schema.optional(Schema.String) }))
        )
      })
    )
  })
)

const { panels } = Schema.decodeSync(Dashboard)(
  readFileSync(path.resolve(import.meta.dirname, "../../deploy/grafana/tollgate.json"), "utf8")
)

const queries = panels.flatMap(({ targets = [], title }) =>
  targets.map(({ expr, legendFormat = "" }) => ({
    title,
    // What Grafana does with its variables, for a scrape of each second.
    expr: expr.replaceAll("$__rate_interval", "60s").replaceAll(/\$(?:instance|tenant|model)\b/g, ".*"),
    labels: [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = ""]) => label)
  }))
)

/** They have values only when something went wrong that this test does not do. */
const mayBeEmpty: ReadonlySet<string> = new Set(["Prompts longer than the context window"])

inWorld(layerGateway({ BACKEND_MAX_CONCURRENT: "8", BACKEND_MAX_LOADED_MODELS: "2" }))(
  "the dashboard",
  (test) => {
    test("when Prometheus is asked its queries, then each has values with the labels of its legend", function* () {
      const { url } = yield* Gateway
      const { secret, tenant } = yield* newKey()
      const limited = yield* newKey({ rpm: 1 })
      const registry = yield* Registry
      yield* registry.changeTenant(tenant, { budgetTotal: 1_000_000 })
      const prometheus = yield* makePrometheus([new URL(url).host])
      const traffic = Effect.gen(function* () {
        yield* call("/api/chat", { secret, body: hello() })
        yield* call("/api/chat", { secret, body: hello({ model: "not-there" }) })
        yield* call("/api/chat", { secret: limited.secret, body: hello() })
        yield* call("/api/chat", { secret: `${secret.slice(0, -1)}_`, body: hello() })
        return yield* Effect.forEach(queries, (query) =>
          Effect.map(prometheus.query(query.expr), (values) => ({ ...query, values }))
        )
      })
      const isAnswered = ({
        title,
        values
      }: {
        readonly title: string
        readonly values: ReadonlyArray<object>
      }) => mayBeEmpty.has(title) || values.length > 0
      type Answers = Effect.Success<typeof traffic>
      const byTitle = (all: Answers, title: string) =>
        all.find((answer) => answer.title === title)?.values ?? []
      /** These have the model, and a value as soon as its requests lie between two scrapes. */
      const hasModel = (all: Answers) => (title: string) =>
        byTitle(all, title).some(({ labels, value }) => labels["model"] === "m:latest" && Number(value) > 0)
      const ofModel = ["Time to the first frame, 95 %, by model", "Output tokens per second, by model"]
      const answers = yield* eventually(
        traffic,
        (all) => all.every(isAnswered) && ofModel.every(hasModel(all))
      )
      assert.isAbove(answers.length, 30)
      assert.deepStrictEqual(
        answers.filter((answer) => !isAnswered(answer)).map(({ expr, title }) => `${title}: ${expr}`),
        [],
        "queries without a value"
      )
      for (const { labels, title, values } of answers) {
        for (const one of values)
          assert.includeMembers(Object.keys(one.labels), labels, `${title}: labels of the legend`)
      }
      for (const title of ofModel) assert.isTrue(hasModel(answers)(title), title)
      assert.includeMembers(
        byTitle(answers, "Refusals by reason").map(({ labels }) => labels["reason"]),
        ["forbidden", "rate_limit_exceeded", "unauthorized"]
      )
    })
  }
)
