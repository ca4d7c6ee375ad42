/**
 * `npm run record`: asks the real server what `test/support/recordings/requests.ts` says and keeps the answers. The
 * double of the other suites is compared with them, so that it cannot drift from the server it stands for.
 */
import { writeFile } from "node:fs/promises"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect, Layer, Schema } from "effect"
import { type Recording, recordingsFile } from "../support/recordings/Recording.ts"
import { type Asked, asked } from "../support/recordings/requests.ts"
import { layerRealOllama, RealOllama } from "./RealOllama.ts"

const readFrame = Schema.decodeUnknownSync(Schema.fromJsonString(Schema.JsonObject))

const readVersion = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Struct({ version: Schema.String }))
)

/** What differs from run to run and is compared by its type alone; long texts and paths are cut. */
const steady = (key: string, value: unknown): unknown => {
  if (key.endsWith("_duration")) return 1
  if (key === "created_at" || key === "modified_at") return "2026-01-01T00:00:00Z"
  if (key === "modelfile" || key === "parent_model") return "cut"
  if (key === "embedding" && Array.isArray(value)) return value.slice(0, 4)
  if (key === "embeddings" && Array.isArray(value))
    return value.map((vector: unknown) => (Array.isArray(vector) ? vector.slice(0, 4) : vector))
  return value
}

const record = Effect.fnUntraced(function* ({ body, name, path }: Asked) {
  const { url } = yield* RealOllama
  const answer = yield* Effect.promise(async (signal) => {
    const sent =
      body === undefined
        ? {}
        : { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body) }
    const answer = await fetch(new URL(path, url), { ...sent, signal })
    return {
      status: answer.status,
      contentType: answer.headers.get("content-type") ?? "",
      text: await answer.text()
    }
  })
  const frames = answer.text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => readFrame(line))
  const recording: Recording = { name, status: answer.status, contentType: answer.contentType, frames }
  return recording
})

const program = Effect.gen(function* () {
  const { url } = yield* RealOllama
  const version = yield* Effect.promise(() =>
    fetch(new URL("/api/version", url)).then((answer) => answer.text())
  )
  const server = `Ollama ${(yield* readVersion(version)).version}`
  const recordings = yield* Effect.forEach(asked, record)
  yield* Effect.promise(() =>
    writeFile(recordingsFile, `${JSON.stringify({ server, recordings }, steady, 2)}\n`)
  )
  yield* Console.log(`${recordings.length} answers of ${server} recorded`)
})

NodeRuntime.runMain(program.pipe(Effect.provide(Layer.orDie(layerRealOllama))))
