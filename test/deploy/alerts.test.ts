/** Each alert of deploy/prometheus/alerts.yaml, judged by Prometheus's own `promtool test rules`. */
import { spawnSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { outages, quietDay } from "./alerts/outages.ts"
import { type Outage, seriesOf } from "./alerts/scrapes.ts"

const root = path.resolve(import.meta.dirname, "../..")
const file = path.join(root, "deploy/prometheus/alerts.yaml")

/** Severity and the fixed text of what to do, by alert. */
const alerts = new Map(
  [
    ...readFileSync(file, "utf8").matchAll(
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

const run = (outage: Outage) => {
  const folder = mkdtempSync(path.join(tmpdir(), "tg-alerts-"))
  try {
    const tests = path.join(folder, "tests.yaml")
    writeFileSync(
      tests,
      JSON.stringify({ rule_files: [file], evaluation_interval: "15s", tests: [testOf(outage)] })
    )
    return spawnSync(promtool(), ["test", "rules", tests], { encoding: "utf8", timeout: 60_000 })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

describe("the alerts", () => {
  it("when a rule is added, then it has a severity, an action and an outage that it is tested with", () => {
    const named = [...readFileSync(file, "utf8").matchAll(/- alert: (\w+)/g)].map((match) => match[1])
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
      const { status, stderr, stdout } = run(outage)
      assert.strictEqual(status, 0, `${stdout}${stderr}`)
    })
  }
})
