/** The operations guide's table of a request's log line is what the gateway prints. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { vi } from "vitest"
import { Collector, traced } from "../support/Collector.ts"
import { call, eventually, Fake, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"

const guide = readFileSync(path.resolve(import.meta.dirname, "../../docs/alerts.md"), "utf8")

const documented = (guide.split("<!-- log line -->")[1] ?? "")
  .trimStart()
  .split("\n\n")[0]
  ?.split("\n")
  .slice(2)
  .flatMap((row) => [...(row.split(" | ")[0] ?? "").matchAll(/`(\w+)`/g)].map((match) => match[1] ?? ""))

const production = {
  NODE_ENV: "production",
  LOG_LEVEL: "info",
  DATABASE_URL: "postgres://unused",
  REDIS_URL: "redis://unused",
  BACKEND_URL: "http://unused"
}

const Line = Schema.fromJsonString(Schema.Record(Schema.String, Schema.Json))

/** The log lines that `work` prints. */
const linesOf = <E, R>(work: Effect.Effect<unknown, E, R>) =>
  Effect.gen(function* () {
    const printed: Array<string> = []
    const spy = vi.spyOn(console, "log").mockImplementation((line) => void printed.push(String(line)))
    yield* Effect.addFinalizer(() => Effect.sync(() => spy.mockRestore()))
    yield* work
    return yield* Effect.forEach(printed, (line) => Schema.decodeEffect(Line)(line))
  }).pipe(Effect.scoped)

inWorld(layerGateway(production))("a request's log line", (test) => {
  test("when a request is logged without a collector, then the line has the fields of the operations guide but its trace", function* () {
    const { secret } = yield* newKey()
    const headers = { traceparent: `00-${"1".repeat(32)}-${"2".repeat(16)}-01` }
    const lines = yield* linesOf(
      Effect.all([
        call("/api/chat", { secret, body: hello(), headers }),
        call("/api/chat", { secret, body: hello({ model: "not-there" }) })
      ])
    )
    const fields = new Set(lines.filter(({ message }) => message === "request").flatMap(Object.keys))
    assert.deepStrictEqual([...fields, "trace_id"].sort(), documented?.toSorted())
  })

  test("when a body is too large, then a line names the setting that bounds it, and the client's error does not", function* () {
    const { secret } = yield* newKey()
    const answers: Array<string> = []
    const lines = yield* linesOf(
      Effect.tap(
        call("/api/chat", { secret, body: hello({ padding: "x".repeat(262_144) }) }),
        ({ status, text }) => Effect.sync(() => void answers.push(`${status} ${text}`))
      )
    )
    const line = lines.find(({ message }) => message === "request body too large")
    assert.deepInclude(line, { setting: "MAX_REQUEST_BODY_BYTES", limit_bytes: 262_144, level: "info" })
    assert.match(answers.join(), /^413 /)
    assert.notInclude(answers.join(), "MAX_REQUEST_BODY_BYTES")
  })
})

const traceId = (digit: string) => digit.repeat(32)
const traceparent = (digit: string, flags: string) => ({
  traceparent: `00-${traceId(digit)}-${"f".repeat(16)}-${flags}`
})

inWorld(traced(layerGateway(production), 1))("a log line with a collector", (test) => {
  test("when a request has a trace, then all its lines name the trace that the collector has", function* () {
    const [{ spans }, backend, { secret }] = [yield* Collector, yield* Fake, yield* newKey()]
    backend.script({ does: "answer", status: 500, body: "{}" })
    const lines = yield* linesOf(
      Effect.gen(function* () {
        yield* call("/api/chat", { secret, body: hello(), headers: traceparent("a", "01") })
        yield* call("/api/chat", { secret, body: hello(), headers: traceparent("b", "00") })
        yield* call("/api/chat", { secret, body: hello() })
      })
    )
    const traces = (wanted: string) =>
      lines.filter(({ message }) => message === wanted).map(({ trace_id }) => trace_id)
    const [sampled, unsampled, own] = traces("request")
    assert.deepStrictEqual([sampled, unsampled], [traceId("a"), traceId("b")])
    assert.deepStrictEqual(traces("backend failed"), [traceId("a")])
    const found = yield* eventually(
      Effect.sync(() => spans().filter((span) => span.traceId === own)),
      (of) => of.length > 0
    )
    assert.isNotEmpty(found)
  })
})

inWorld(traced(layerGateway(production), 0))("a log line of a request that is not sampled", (test) => {
  test("when nobody has spans of a request, then its line names no trace", function* () {
    const { secret } = yield* newKey()
    const lines = yield* linesOf(
      Effect.gen(function* () {
        yield* call("/api/chat", { secret, body: hello() })
        yield* call("/api/chat", { secret, body: hello(), headers: traceparent("c", "01") })
      })
    )
    assert.deepStrictEqual(
      lines.filter(({ message }) => message === "request").map(({ trace_id }) => trace_id),
      [undefined, traceId("c")]
    )
  })
})
