import { spawnSync } from "node:child_process"
import * as fs from "node:fs/promises"
import { assert, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import {
  readRuntime,
  removeRuntime,
  runtimeFile,
  writeRuntime
} from "../../../../src/infra/embedded/RuntimeFile.ts"
import { testWith } from "../../../support/testWith.ts"
import { temporaryFolder } from "../../../support/temporaryFolder.ts"

const database = { path: "/run/s", database: "postgres", username: "tollgate" }

const test = testWith(it.effect)

test("when it is written, then others read the same values, and only its owner may read it", function* () {
  const dataDir = yield* temporaryFolder
  const runtime = { pid: process.pid, database, baseUrl: "http://127.0.0.1:8080" }
  assert.isTrue(Option.isNone(yield* readRuntime(dataDir)))
  yield* writeRuntime(dataDir, runtime)
  assert.deepStrictEqual(yield* readRuntime(dataDir), Option.some(runtime))
  const { mode } = yield* Effect.promise(() => fs.stat(runtimeFile(dataDir)))
  assert.strictEqual(mode & 0o777, 0o600)
  yield* removeRuntime(dataDir)
  assert.isTrue(Option.isNone(yield* readRuntime(dataDir)))
})

test("when its process has ended, then it is ignored", function* () {
  const dataDir = yield* temporaryFolder
  const ended = spawnSync("true").pid
  yield* writeRuntime(dataDir, { pid: ended, database })
  assert.isTrue(Option.isNone(yield* readRuntime(dataDir)))
})

test("when another living process wrote it, then it is not removed", function* () {
  const dataDir = yield* temporaryFolder
  yield* writeRuntime(dataDir, { pid: process.ppid, database })
  yield* removeRuntime(dataDir)
  assert.isTrue(Option.isSome(yield* readRuntime(dataDir)))
})

test("when it cannot be understood, then it is an error and not an empty file", function* () {
  const dataDir = yield* temporaryFolder
  yield* Effect.promise(() => fs.writeFile(runtimeFile(dataDir), "{}"))
  assert.strictEqual((yield* Effect.flip(readRuntime(dataDir)))._tag, "RuntimeFileFailed")
})
