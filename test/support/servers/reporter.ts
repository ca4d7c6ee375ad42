/** Says at the very end what ran, on which servers, and how it went, in one line that tools can read. */
import { writeSync } from "node:fs"
import type { Reporter, SerializedError, TestModule } from "vitest/node"

/** What passes at a second try is no failure of this run, but a fault of the test. */
const faultsOf = (second: ReadonlyArray<string>): ReadonlyArray<string> =>
  second.length === 0
    ? []
    : [
        "FAULT: these tests needed a second try. They rest on what a machine does within a time, or on one another: mend them.",
        ...second
      ]

/** What the try that failed said: nothing else in the output of a run tells it. */
const whyOf = ({ diff = "", message, stack = "" }: SerializedError): string =>
  [message, diff, ...stack.split("\n").filter((line) => line.includes("/test/"))]
    .filter((part) => part !== "")
    .join("\n")
    .slice(0, 2000)
    .replaceAll(/^/gm, "    ")

export class Summary implements Reporter {
  onTestRunEnd(modules: ReadonlyArray<TestModule>, unhandled: ReadonlyArray<SerializedError>): void {
    const count = { passed: 0, failed: unhandled.length, skipped: 0 }
    const second: Array<string> = []
    for (const module of modules) {
      let failedTests = 0
      for (const test of module.children.allTests()) {
        const { errors = [], state } = test.result()
        if ((test.diagnostic()?.retryCount ?? 0) > 0)
          second.push([`  ${module.relativeModuleId}: ${test.fullName}`, ...errors.map(whyOf)].join("\n"))
        if (state === "passed") count.passed++
        else if (state === "failed") failedTests++
        else count.skipped++
      }
      // A file that does not load has no tests, and has failed.
      count.failed += failedTests === 0 && module.state() === "failed" ? 1 : failedTests
    }
    const redis = process.env["TEST_REDIS_URL"] ? "the one of TEST_REDIS_URL" : "a real redis-server"
    const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : ""
    const lines = [
      ...faultsOf(second),
      `${modules.length} suites, ${count.passed + count.failed + count.skipped} tests; Postgres: a real cluster of this run; Redis: ${redis}`,
      `Tollgate: ${count.passed} passed, ${count.failed} failed${skipped}${second.length > 0 ? `, FAULT: ${second.length} needed a second try` : ""}`
    ]
    // On exit, so that no other reporter writes after it.
    process.once("exit", () => writeSync(1, `\n${lines.join("\n")}\n`))
  }
}
