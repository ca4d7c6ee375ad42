import { defineConfig } from "vitest/config"
import { Summary } from "./test/support/servers/reporter.ts"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts", "lab/**/*.test.ts", "playground/test/**/*.test.ts"],
    globalSetup: ["./test/support/servers/globalSetup.ts"],
    reporters: ["default", new Summary()],
    // Only what hangs takes so long: a busy machine is no failure. Longer than any wait of a test (`test/support/wait.ts`).
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // Only where nobody can look and try again. The summary names every test that needed it, as a fault.
    retry: process.env["CI"] === "true" ? 1 : 0,
    pool: "forks",
    // The files of a worker share one process: a process for each file spends half its time on imports.
    isolate: false,
    setupFiles: ["./test/support/setup.ts"],
    // Half of a test is waiting, for servers and for real time: more workers than cores fill it.
    maxWorkers: 4
  }
})
