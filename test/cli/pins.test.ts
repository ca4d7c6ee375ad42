/** `set-models --pin`, and the pins in the file of `export` and `apply`. */
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Backend } from "../../src/backend/Backend.ts"
import { isInForce } from "../../src/gates/queue/pins.ts"
import { modelNamed } from "../support/permits.ts"
import { Admin, tollgateWith } from "./inProcess.ts"
import { failsWith, json, succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"

const tollgate = tollgateWith(
  Layer.mock(Backend, { models: Effect.succeed([modelNamed("llama3.2:3b"), modelNamed("embed:latest")]) })
)
const Pins = Schema.Array(Schema.Struct({ model: Schema.String, hours: Schema.NullOr(Schema.String) }))
const pin = (...args: ReadonlyArray<string>) => tollgate("set-models", ...args)
const folder = mkdtempSync(path.join(tmpdir(), "tollgate-pins-"))

const apply = (text: string, ...more: ReadonlyArray<string>) => {
  const file = path.join(folder, "pins.yaml")
  writeFileSync(file, `version: 1\ntenants: []\n${text}`)
  return tollgate("apply", "-f", file, ...more)
}

const test = testWith(it.effect, Admin)

test("when models are pinned, changed and unpinned, then the others stay", function* () {
  const both = yield* pin("--pin", "llama3.2:3b,embed:latest", "--json")
  assert.deepStrictEqual(yield* json(Pins, both), [
    { model: "embed", hours: null },
    { model: "llama3.2:3b", hours: null }
  ])
  assert.strictEqual(both.stderr, "")
  assert.match(
    (yield* pin("--pin", "embed", "--pin-hours", "08-18")).stdout,
    /embed +08-18\nllama3.2:3b +always/
  )
  const missing = yield* pin("--pin", "qwen3:8b", "--unpin", "llama3.2:3b", "--json")
  assert.deepStrictEqual(yield* json(Pins, missing), [
    { model: "embed", hours: "08-18" },
    { model: "qwen3:8b", hours: null }
  ])
  assert.match(missing.stderr, /qwen3:8b/)
  assert.match((yield* pin("--unpin", "embed,qwen3:8b")).stdout, /no model is pinned/)

  const withoutQueue = /BACKEND_MAX_CONCURRENT is not set here/
  assert.match((yield* pin("--pin", "embed")).stderr, withoutQueue)
  const places = ConfigProvider.fromEnv({ env: { BACKEND_MAX_CONCURRENT: "2" } })
  const queued = yield* Effect.provideService(pin("--pin", "embed"), ConfigProvider.ConfigProvider, places)
  assert.notMatch(queued.stderr, withoutQueue)
})

test("when a pin is wrong, of a tenant, or one too many, then nothing is changed", function* () {
  succeeds(yield* pin("--pin", "embed"))
  for (const hours of ["8-18", "08-25", "08-08", "24-08", "day"])
    failsWith(yield* pin("--pin", "embed", "--pin-hours", hours), /two different hours of the day in UTC/)
  failsWith(yield* pin("--pin-hours", "08-18"), /given with --pin/)
  failsWith(yield* pin("--pin", "embed", "--tenant", "acme"), /it is for all tenants/)
  failsWith(yield* pin("--unpin", "embed", "--add", "x"), /it is for all tenants/)
  failsWith(yield* pin("--pin", "a b"), /a model name/)
  failsWith(yield* pin("--pin", "new", "--unpin", "none"), /pinned models, and none is none/)
  const many = Array.from({ length: 16 }, (_, i) => `m${i}`)
  failsWith(yield* pin("--pin", many.join()), /at most 16 models in all/)
  assert.include((yield* tollgate("export")).stdout, "pins:\n  - model: embed\n    hours: null\n")
})

test("when a file has pins, then no others stay; without them, all do", function* () {
  succeeds(yield* pin("--pin", "embed,old"))
  const wanted = 'pins: [{ model: "embed:latest", hours: 22-06 }, { model: big }]'
  const dry = yield* apply(wanted, "--dry-run")
  assert.match(dry.stdout, /gateway: pins .*"old".* -> .*"22-06".*\n1 change would be made/)
  succeeds(yield* apply(wanted))
  assert.match((yield* apply(wanted)).stdout, /nothing to change/)
  assert.match((yield* apply("")).stdout, /nothing to change/)
  const { stdout } = yield* tollgate("export")
  assert.include(stdout, "pins:\n  - model: big\n    hours: null\n  - model: embed\n    hours: 22-06\n")
  assert.match((yield* apply("pins: []")).stdout, /1 change made/)
  failsWith(yield* apply("pins: [{ model: x, hours: 08:00-18:00 }]"), /pin-hours must be two different hours/)
})

test("when a pin has hours, then it is in force in these hours of UTC, over midnight too", function* () {
  const sql = yield* SqlClient.SqlClient
  const inForce = isInForce.replaceAll("now()", "at")
  for (const [hours, expected] of [
    ["08-18", [8, 17]],
    ["22-06", [22, 23, 0, 5]],
    ["18-24", [18, 23]],
    ["00-24", [0, 8, 23]]
  ] as const) {
    const rows = yield* sql<{ readonly hour: number }>`
        SELECT hour::float8 FROM generate_series(0, 23) AS hour
        CROSS JOIN LATERAL (SELECT '2026-03-01 00:30Z'::timestamptz + hour * interval '1 hour' AS at, ${hours}::text AS hours) pin
        WHERE ${sql.literal(inForce)}`
    const found = rows.map(({ hour }) => hour)
    assert.includeMembers(found, [...expected], hours)
    const [from = 0, until = 0] = hours.split("-").map(Number)
    assert.lengthOf(found, (until - from + 24) % 24 || 24, hours)
  }
})
