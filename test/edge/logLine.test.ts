/** The operations guide's table of a request's log line is what the gateway prints. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { vi } from "vitest"
import { call, hello, layerGateway, newKey } from "../support/Gateway.ts"

const guide = readFileSync(path.resolve(import.meta.dirname, "../../docs/operations.md"), "utf8")

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

layer(layerGateway(production), { excludeTestServices: true, timeout: 30_000 })(
  "a request's log line",
  (it) => {
    it.effect(
      "when a request is logged, then the line has the fields of the operations guide and no others",
      () =>
        Effect.gen(function* () {
          const { secret } = yield* newKey()
          const printed: Array<string> = []
          const spy = vi.spyOn(console, "log").mockImplementation((line) => void printed.push(String(line)))
          yield* Effect.addFinalizer(() => Effect.sync(() => spy.mockRestore()))
          yield* call("/api/chat", { secret, body: hello() })
          yield* call("/api/chat", { secret, body: hello({ model: "not-there" }) })
          const lines = yield* Effect.forEach(printed, (line) => Schema.decodeEffect(Line)(line))
          const fields = new Set(lines.filter(({ message }) => message === "request").flatMap(Object.keys))
          assert.deepStrictEqual([...fields].sort(), documented?.toSorted())
        }).pipe(Effect.scoped)
    )
  }
)
