/** One answer of the real server, as it is kept. */
import { readFileSync } from "node:fs"
import { Schema } from "effect"

export const Recording = Schema.Struct({
  name: Schema.String,
  status: Schema.Int,
  contentType: Schema.String,
  /** lines of a stream, or the one object */
  frames: Schema.Array(Schema.JsonObject)
})
export type Recording = typeof Recording.Type

const File = Schema.fromJsonString(
  Schema.Struct({ server: Schema.String, recordings: Schema.Array(Recording) })
)

export const recordingsFile = new URL("ollama.json", import.meta.url)

export const readRecordings = () => Schema.decodeSync(File)(readFileSync(recordingsFile, "utf8"))
