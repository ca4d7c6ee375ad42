/** The tables of docs/protocol.md say what the code does. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { maxDimensions, maxInputs, maxTopLogprobs } from "../../../src/http/dialect/fields.ts"
import { maxImages, maxPixels, maxSide } from "../../../src/backend/ollama/guards/images.ts"
import { schemaBounds } from "../../../src/backend/ollama/guards/jsonSchema.ts"
import { maxStopLength, maxStops } from "../../../src/http/dialect/sampling.ts"
import { maxToolDepth, maxTools, maxToolValues } from "../../../src/http/dialect/tools.ts"

const page = readFileSync(path.resolve(import.meta.dirname, "../../../docs/protocol.md"), "utf8")

/** The rows of the table after `<!-- name -->`, without its head. */
const table = (name: string): ReadonlyArray<ReadonlyArray<string>> =>
  (page.split(`<!-- ${name} -->\n`)[1] ?? "")
    .split("\n\n")[0]
    ?.split("\n")
    .slice(2)
    .filter((line) => line.startsWith("|"))
    .map((line) =>
      line
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim())
    ) ?? []

it("when a list has a bound, then the table of lists has it", () => {
  assert.deepStrictEqual(
    table("lists").map(([, most]) => Number(most)),
    [
      maxStops,
      maxStopLength,
      maxInputs,
      maxDimensions,
      maxTopLogprobs,
      maxImages,
      maxPixels,
      maxSide,
      maxTools,
      maxToolDepth,
      maxToolValues
    ]
  )
})

it("when a schema has a bound, then the table of schemas has it", () => {
  assert.deepStrictEqual(
    table("schemas").map(([, most]) => Number(most)),
    Object.values(schemaBounds)
  )
})
