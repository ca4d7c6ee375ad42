/**
 * `DATA_DIR/runtime.json`: a command in a second terminal reads here the addresses of the database and the gateway of a
 * running `npm start`. Only the owner can read it. The gateway removes it when it stops. It is ignored when its process has
 * ended.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Data, Effect, Option, Schema } from "effect"
import { codeOf } from "../errorCode.ts"

export const Runtime = Schema.Struct({
  /** of the gateway process */
  pid: Schema.Int.check(Schema.isGreaterThan(0)),
  database: Schema.Struct({
    /** the socket file */
    path: Schema.NonEmptyString,
    database: Schema.NonEmptyString,
    username: Schema.NonEmptyString,
    password: Schema.optionalKey(Schema.RedactedFromValue(Schema.NonEmptyString))
  }),
  /** the address on which the gateway listens */
  baseUrl: Schema.optionalKey(Schema.NonEmptyString),
  /** the model server in use, or the demo one */
  backendUrl: Schema.optionalKey(Schema.NonEmptyString)
})
export type Runtime = typeof Runtime.Type

/** The file exists and cannot be read, or it cannot be written. */
export class RuntimeFileFailed extends Data.TaggedError("RuntimeFileFailed")<{
  readonly file: string
  readonly cause: unknown
}> {
  override get message(): string {
    return `${this.file} cannot be read or written`
  }
}

export const runtimeFile = (dataDir: string): string => path.join(dataDir, "runtime.json")

const codec = Schema.fromJsonString(Runtime)
const decode = Schema.decodeUnknownEffect(codec)
const encode = Schema.encodeEffect(codec)

/** Whether a process with this id exists, of any user. */
export const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch (cause) {
    return codeOf(cause) === "EPERM"
  }
}

/** Replaces the file in one step, so that a reader sees the old or the new file. */
export const writeRuntime = (dataDir: string, runtime: Runtime): Effect.Effect<void, RuntimeFileFailed> => {
  const file = runtimeFile(dataDir)
  return encode(runtime).pipe(
    Effect.flatMap((text) =>
      Effect.tryPromise(async () => {
        const draft = `${file}.${randomBytes(4).toString("hex")}`
        await fs.writeFile(draft, `${text}\n`, { mode: 0o600 })
        await fs.rename(draft, file)
      })
    ),
    Effect.mapError((cause) => new RuntimeFileFailed({ file, cause }))
  )
}

/** Reads what runs in `dataDir` now; none when its process has ended. */
export const readRuntime = (dataDir: string): Effect.Effect<Option.Option<Runtime>, RuntimeFileFailed> => {
  const file = runtimeFile(dataDir)
  return Effect.tryPromise({
    try: () =>
      fs.readFile(file, "utf8").catch((cause: unknown) => {
        if (codeOf(cause) === "ENOENT") return undefined
        throw cause
      }),
    catch: (cause) => new RuntimeFileFailed({ file, cause })
  }).pipe(
    Effect.flatMap((text) =>
      text === undefined
        ? Effect.succeedNone
        : decode(text).pipe(
            Effect.map((runtime) => (isAlive(runtime.pid) ? Option.some(runtime) : Option.none())),
            Effect.mapError((cause) => new RuntimeFileFailed({ file, cause }))
          )
    )
  )
}

/** Removes the file if it belongs to this process. */
export const removeRuntime = (dataDir: string): Effect.Effect<void, RuntimeFileFailed> =>
  Effect.flatMap(readRuntime(dataDir), (runtime) =>
    Option.isSome(runtime) && runtime.value.pid !== process.pid
      ? Effect.void
      : Effect.tryPromise({
          try: () => fs.rm(runtimeFile(dataDir), { force: true }),
          catch: (cause) => new RuntimeFileFailed({ file: runtimeFile(dataDir), cause })
        })
  )
