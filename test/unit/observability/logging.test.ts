/** What a log line may hold, whoever wrote it. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Logger, References, Schema } from "effect"
import { ConstraintError, SqlError, UnknownError } from "effect/sql/SqlError"
import { renderCause } from "../../../src/observability/renderCause.ts"
import { jsonLine, layerLogging, RequestLines, textLine } from "../../../src/observability/logging.ts"
import type { AuditRecord } from "../../../src/domain/AuditRecord.ts"
import { mintKey, prefixOf } from "../../../src/domain/Key.ts"
import { testWith } from "../../support/testWith.ts"

const linesOf = Effect.fnUntraced(function* (
  line: Logger.Logger<unknown, string>,
  logs: Effect.Effect<void>
) {
  const lines: Array<string> = []
  const capture = Logger.make<unknown, void>((options) => void lines.push(line.log(options)))
  yield* logs.pipe(
    Effect.provide(Logger.layer([capture])),
    Effect.provideService(References.MinimumLogLevel, "Debug")
  )
  return lines
})

/** As the driver makes it: the server's fields on an error. */
const postgres = (fields: object) =>
  Object.assign(new Error(), { severity: "ERROR", routine: "ExecConstraints", ...fields })

const refusedRow = new SqlError({
  reason: new ConstraintError({
    message: "Failed to execute statement",
    operation: "execute",
    cause: postgres({
      code: "23514",
      table: "prompt_log",
      message: 'new row for relation "prompt_log" violates check constraint "short"',
      detail: "Failing row contains (marker-prompt).",
      where: "marker-where",
      hint: "marker-hint"
    })
  })
})

const unreadable = new SqlError({
  reason: new UnknownError({
    message: "Failed to execute statement",
    operation: "execute",
    cause: postgres({ code: "22P02", message: 'invalid input syntax for type uuid: "marker-value"' })
  })
})

const test = testWith(it.effect)

for (const [name, line] of [
  ["JSON", jsonLine],
  ["text", textLine]
] as const) {
  test(`when a line has a key (${name}), whole, cut short or in a cause, then its secret is redacted`, function* () {
    const key = mintKey("tg_")
    const other = mintKey("x9_").slice(0, -4)
    const error = new Error(`message ${key}`, { cause: new Error(`cause ${key}`) })
    const lines = yield* linesOf(
      line,
      Effect.gen(function* () {
        yield* Effect.logInfo(`words ${key}, ${other}`)
        yield* Effect.logInfo("field", { [key]: { deep: [`a${other}b`] } })
        yield* Effect.annotateLogs(Effect.logInfo("annotated"), "k", key)
        yield* Effect.logError("error", error)
        yield* Effect.logError("error in a field", { error })
        yield* Effect.logError("cause", Cause.die(error))
        yield* Effect.logError("value", Cause.fail({ key }))
      })
    )
    assert.strictEqual(lines.length, 7)
    for (const text of lines) {
      assert.notInclude(text, key.slice(12, 24))
      assert.notInclude(text, other.slice(12, 24))
    }
    assert.include(lines[0], `${prefixOf(key)}…, ${prefixOf(other)}…`)
  })

  test(`when a text is logged (${name}), then it is one line and has nothing a terminal obeys`, function* () {
    const hostile = "a\u001b[31mb\r\nc\u202ed\u2028e\u009bf\u0000g"
    const lines = yield* linesOf(
      line,
      Effect.annotateLogs(Effect.logInfo(hostile, { field: hostile, [hostile]: 1 }), "note", hostile)
    )
    assert.strictEqual(lines.length, 1)
    assert.notMatch(lines[0] ?? "", /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/u)
  })

  test(`when Postgres quotes rows and values (${name}), then they are left out, and the place of the error stays`, function* () {
    const lines = yield* linesOf(
      line,
      Effect.gen(function* () {
        for (const error of [refusedRow, unreadable]) {
          yield* Effect.logWarning("as a value", error)
          yield* Effect.logWarning("as a cause", Cause.fail(error))
          yield* Effect.logWarning("below another", new Error("outer", { cause: error }))
          yield* Effect.logWarning("in a field", { error })
        }
      })
    )
    assert.strictEqual(lines.length, 8)
    for (const text of lines) assert.notMatch(text, /marker-(?:prompt|where|hint|value)/)
    for (const text of lines.slice(0, 4)) assert.match(text, /23514.*prompt_log/)
    for (const text of lines.slice(4)) assert.include(text, "22P02")
  })
}

test("when something is redacted in a line of JSON, then the line is still JSON", function* () {
  const key = mintKey("tg_")
  const lines = yield* linesOf(
    jsonLine,
    Effect.logInfo(`\u001b${key}\u009b"\\${key}\n`, { [`"${key}\u2028`]: key })
  )
  const line = yield* Schema.decodeEffect(Schema.fromJsonString(Schema.Record(Schema.String, Schema.Json)))(
    lines[0] ?? ""
  )
  const public_ = `${prefixOf(key)}…`
  assert.strictEqual(line["message"], `\u001b${public_}\u009b"\\${public_}\n`)
  assert.strictEqual(line[`"${public_}\u2028`], public_)
})

it("when an error has causes, then the first cause comes first, with frames only when they are asked for, and a circle ends", () => {
  const inner = new TypeError("inner")
  const text = renderCause(new Error("outer", { cause: inner }))
  assert.match(text, /^TypeError: inner\n\s+at .*\n(?:.*\n)*\s+became Error: outer\n\s+at /)
  assert.strictEqual(
    renderCause(new Error("outer", { cause: inner }), false),
    "TypeError: inner\n  became Error: outer"
  )
  assert.strictEqual(renderCause(Cause.fail(inner), false), "TypeError: inner")
  assert.match(renderCause(Cause.die(inner), false), /^TypeError: inner\n\s+at /)
  const circle = new Error("circle")
  circle.cause = circle
  assert.isBelow(renderCause(circle).length, 20_000)
  assert.strictEqual(renderCause(Cause.interrupt()), "interrupted")
})

describe("the lines of requests", () => {
  const secret = mintKey("tg_")
  const record: AuditRecord = {
    arrival: {
      requestId: "01a1fe92-0000-7000-8000-00000000000a",
      arrivedAt: 0,
      method: "POST",
      endpoint: "/api/chat",
      clientIp: "192.0.2.1"
    },
    model: "m:latest",
    streamed: true,
    usage: { tokensIn: 7, tokensOut: 3, source: "backend" },
    status: 200,
    latencyMs: 41
  }

  /** What is printed of two requests; undefined: requests have no line. */
  const printed = (
    settings: Parameters<typeof layerLogging>[0],
    isTerminal: boolean
  ): Effect.Effect<ReadonlyArray<string> | undefined> =>
    Effect.gen(function* () {
      const write = yield* RequestLines
      if (write === undefined) return undefined
      return yield* linesOf(
        settings.production ? jsonLine : textLine,
        Effect.andThen(
          write(record),
          write({
            ...record,
            arrival: { ...record.arrival, endpoint: `/${secret}\u001b[31m${"x".repeat(500)}` },
            status: 429,
            errorType: "rate_limit_exceeded",
            usage: { tokensIn: 0, tokensOut: 0, source: "estimated" }
          })
        )
      )
    }).pipe(Effect.provide(layerLogging(settings, isTerminal)))

  test("when the gateway runs at a terminal, then each request is one short line without keys", function* () {
    const [good = "", refused = ""] = (yield* printed({ logLevel: "info", production: false }, true)) ?? []
    assert.match(good, /^[\d:]{8} INFO  POST \/api\/chat  m:latest  200  7 in, 3 out  41 ms$/)
    assert.match(refused, /  m:latest  429 rate_limit_exceeded  41 ms$/)
    assert.isBelow(refused.length, 250)
    assert.notInclude(refused, secret.slice(12))
    assert.notInclude(refused, "\u001b")
  })

  test("when it runs in production, then the line is the JSON one, at a terminal too", function* () {
    const [line = ""] = (yield* printed({ logLevel: "info", production: true }, true)) ?? []
    assert.match(line, /"message":"request".*"latency_ms":41,"tokens_in":7,"tokens_out":3\}$/)
  })

  test("when nobody watches, or the level is above info, then requests have no line", function* () {
    assert.isUndefined(yield* printed({ logLevel: "info", production: false }, false))
    assert.isUndefined(yield* printed({ logLevel: "warn", production: false }, true))
    assert.isUndefined(yield* printed({ logLevel: "warn", production: true }, true))
  })
})
