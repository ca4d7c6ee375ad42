/**
 * `DATA_DIR/runtime.json`: how a command in a second terminal finds the database and the gateway that a running
 * `npm start` keeps in that folder. Readable by its owner only; gone when the gateway stops, and not believed when
 * the process it names has ended.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Data, Effect, Option, Schema } from "effect"

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
  /** where the gateway listens */
  baseUrl: Schema.optionalKey(Schema.NonEmptyString),
  /** the model server in use, the demo one included */
  backendUrl: Schema.optionalKey(Schema.NonEmptyString)
})
export type Runtime = typeof Runtime.Type

/** The file is there and cannot be read, or cannot be written. */
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

const errorCode = (cause: unknown): unknown =>
  cause instanceof Error && "code" in cause ? cause.code : undefined

/** Is there a process of this number? Another user's counts. */
export const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch (cause) {
    return errorCode(cause) === "EPERM"
  }
}

/** Replaces the file in one step: a reader sees the old one or the new one. */
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

/** What runs in `dataDir` right now; none when nothing does, whatever an old file says. */
export const readRuntime = (dataDir: string): Effect.Effect<Option.Option<Runtime>, RuntimeFileFailed> => {
  const file = runtimeFile(dataDir)
  return Effect.tryPromise({
    try: () =>
      fs.readFile(file, "utf8").catch((cause: unknown) => {
        if (errorCode(cause) === "ENOENT") return undefined
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

/** Takes the file away if it is this process's. */
export const removeRuntime = (dataDir: string): Effect.Effect<void, RuntimeFileFailed> =>
  Effect.flatMap(readRuntime(dataDir), (runtime) =>
    Option.isSome(runtime) && runtime.value.pid !== process.pid
      ? Effect.void
      : Effect.tryPromise({
          try: () => fs.rm(runtimeFile(dataDir), { force: true }),
          catch: (cause) => new RuntimeFileFailed({ file: runtimeFile(dataDir), cause })
        })
  )
