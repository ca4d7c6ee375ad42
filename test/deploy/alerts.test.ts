/** Each alert of deploy/prometheus/alerts.yaml, judged by Prometheus's own `promtool test rules`. */
import { spawnSync } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { outages, quietDay } from "./alerts/outages.ts"
import { type Outage, seriesOf } from "./alerts/scrapes.ts"

const root = path.resolve(import.meta.dirname, "../..")
const rules = readFileSync(path.join(root, "deploy/prometheus/alerts.yaml"), "utf8")

/** Severity and the fixed text of what to do, by alert. */
const alerts = new Map(
  [
    ...rules.matchAll(
      /- alert: (\w+)\n(?:(?! {6}- alert)[^\n]*\n)*? *labels: \{ severity: (\w+) \}\n *annotations:\n[^\n]*\n *action: "([^\n]*)"/g
    )
  ].map(([, alert = "", severity = "", action = ""]) => [alert, { severity, action }])
)

const promtool = () => {
  const found = spawnSync(path.join(root, "test/deploy/prometheus.sh"), {
    encoding: "utf8",
    timeout: 120_000
  })
  assert.strictEqual(found.status, 0, `promtool is needed: install prometheus\n${found.stderr}`)
  return path.join(found.stdout.trim(), "promtool")
}

/** An outage in promtool's form (JSON is YAML): at each time all alerts are named, so that no other one may fire. */
const testOf = (outage: Outage) => ({
  name: outage.name,
  interval: "15s",
  input_series: Object.entries(seriesOf(outage)).map(([series, values]) => ({ series, values })),
  alert_rule_test: outage.at.flatMap(([eval_time, fired]) =>
    [...alerts].map(([alertname, { action, severity }]) => ({
      eval_time,
      alertname,
      exp_alerts: fired
        .filter(({ alert }) => alert === alertname)
        .map(({ labels, summary }) => ({
          exp_labels: { ...labels, severity },
          exp_annotations: { summary, action }
        }))
    }))
  )
})

/** Runs one test of promtool on the given rules. */
const judge = (test: object, rules: string) => {
  const folder = mkdtempSync(path.join(tmpdir(), "tg-alerts-"))
  try {
    const [ruleFile, tests] = [path.join(folder, "rules.yaml"), path.join(folder, "tests.yaml")]
    writeFileSync(ruleFile, rules)
    writeFileSync(
      tests,
      JSON.stringify({ rule_files: [ruleFile], evaluation_interval: "15s", tests: [test] })
    )
    const { status, stderr, stdout } = spawnSync(promtool(), ["test", "rules", tests], {
      encoding: "utf8",
      timeout: 60_000
    })
    assert.strictEqual(status, 0, `${stdout}${stderr}`)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const recordedFolder = path.join(root, "test/deploy/alerts/recorded")

/** What `npm run drill -- --record` keeps of an outage. */
const Recorded = Schema.Struct({
  outage: Schema.String,
  date: Schema.String,
  minutes: Schema.Finite,
  fired: Schema.Array(Schema.Record(Schema.String, Schema.String)),
  series: Schema.Record(Schema.String, Schema.String)
})

const recorded = readdirSync(recordedFolder).map((name) =>
  Schema.decodeSync(Schema.fromJsonString(Recorded))(readFileSync(path.join(recordedFolder, name), "utf8"))
)

/** At its end exactly the alerts fire that Prometheus had then. Annotations have figures of the faster run. */
const testOfRecorded = ({ fired, minutes, outage, series }: (typeof recorded)[number]) => ({
  name: outage,
  interval: "15s",
  input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
  alert_rule_test: [...alerts.keys()].map((alertname) => ({
    eval_time: `${Math.round(minutes * 60)}s`,
    alertname,
    exp_alerts: fired
      .filter((labels) => labels["alertname"] === alertname)
      .map((labels) => ({
        exp_labels: Object.fromEntries(Object.entries(labels).filter(([label]) => label !== "alertname"))
      }))
  }))
})

describe("the alerts", () => {
  it("when a rule is added, then it has a severity, an action and an outage that it is tested with", () => {
    const named = [...rules.matchAll(/- alert: (\w+)/g)].map((match) => match[1])
    assert.deepStrictEqual([...alerts.keys()], named, "alerts without severity, summary or action")
    const fired = new Set(
      outages.flatMap(({ at }) => at.flatMap(([, list]) => list.map(({ alert }) => alert)))
    )
    assert.deepStrictEqual(
      named.filter((alert) => !fired.has(alert ?? "")),
      [],
      "alerts that no outage of test/deploy/alerts/outages.ts sets off"
    )
  })

  for (const outage of [quietDay, ...outages]) {
    const expected = new Set(outage.at.flatMap(([, fired]) => fired.map(({ alert }) => alert)))
    it(`when ${outage.name}, then these alerts fire and no other: ${[...expected].join(", ") || "none"}`, () => {
      judge(testOf(outage), rules)
    })
  }

  it("when the drill has recorded its outages, then each dependency is among them", () => {
    const names = recorded.map(({ outage }) => outage)
    for (const part of ["Postgres", "Redis", "Model server", "One replica"]) {
      for (const fault of part === "One replica" ? ["killed", "frozen"] : ["killed", "frozen", "slow"]) {
        assert.include(names, `${part} ${fault}`)
      }
    }
    assert.isTrue(recorded.every(({ fired }) => fired.length > 0))
  })

  for (const one of recorded) {
    const names = new Set(one.fired.map((labels) => labels["alertname"]))
    it(`when ${one.outage} as on ${one.date}, then these alerts fire and no other: ${[...names].join(", ")}`, () => {
      judge(testOfRecorded(one), rules.replaceAll(/^ *annotations:\n(?: {10}\w.*\n)+/gm, ""))
    })
  }
})
