/** What a log line may hold, whoever wrote it. */
import { assert, it } from "@effect/vitest"
import { Cause, Effect, Logger, References, Schema } from "effect"
import { ConstraintError, SqlError, UnknownError } from "effect/sql/SqlError"
import { renderCause } from "../../../src/observability/renderCause.ts"
import { jsonLine, textLine } from "../../../src/observability/logging.ts"
import { mintKey, prefixOf } from "../../../src/domain/Key.ts"

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

for (const [name, line] of [
  ["JSON", jsonLine],
  ["text", textLine]
] as const) {
  it.effect(
    `when a line has a key (${name}), whole, cut short or in a cause, then its secret is redacted`,
    () =>
      Effect.gen(function* () {
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
  )

  it.effect(`when a text is logged (${name}), then it is one line and has nothing a terminal obeys`, () =>
    Effect.gen(function* () {
      const hostile = "a\u001b[31mb\r\nc\u202ed\u2028e\u009bf\u0000g"
      const lines = yield* linesOf(
        line,
        Effect.annotateLogs(Effect.logInfo(hostile, { field: hostile, [hostile]: 1 }), "note", hostile)
      )
      assert.strictEqual(lines.length, 1)
      assert.notMatch(lines[0] ?? "", /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/u)
    })
  )

  it.effect(
    `when Postgres quotes rows and values (${name}), then they are left out, and the place of the error stays`,
    () =>
      Effect.gen(function* () {
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
  )
}

it.effect("when something is redacted in a line of JSON, then the line is still JSON", () =>
  Effect.gen(function* () {
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
)

it("when an error has causes, then all are written with their frames, and a circle ends", () => {
  const inner = new TypeError("inner")
  const text = renderCause(new Error("outer", { cause: inner }))
  assert.match(text, /^Error: outer\n\s+at .*\n(?:.*\n)*\s+caused by TypeError: inner\n\s+at /)
  const circle = new Error("circle")
  circle.cause = circle
  assert.isBelow(renderCause(circle).length, 20_000)
  assert.strictEqual(renderCause(Cause.interrupt()), "interrupted")
})
