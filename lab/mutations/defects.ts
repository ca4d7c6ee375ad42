import { readFileSync } from "node:fs"
import * as path from "node:path"
import { Schema } from "effect"
import { parse } from "yaml"

const Defect = Schema.Struct({
  what: Schema.String,
  /** in `src` */
  file: Schema.String,
  text: Schema.String,
  /** what stands there with the defect */
  instead: Schema.String
})
export type Defect = typeof Defect.Type

export const defects = Schema.decodeUnknownSync(Schema.Array(Defect))(
  parse(readFileSync(path.join(import.meta.dirname, "defects.yaml"), "utf8"))
)
