/**
 * `DATA_DIR/runtime.json`: a command in a second terminal reads here the addresses of the database and the gateway of a
 * running `npm start`. Only the owner can read it. The gateway removes it when it stops. It is ignored when its process has
 * ended.
 */
import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
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
    username: Schema.NonEmptyString
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
const decode = Schema.decodeUnknownPromise(codec)
const encode = Schema.encodePromise(codec)

/** Whether a process with this id exists, of any user. */
export const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch (cause) {
    return codeOf(cause) === "EPERM"
  }
}

const failing = <A>(file: string, act: () => Promise<A>) =>
  Effect.tryPromise({ try: act, catch: (cause) => new RuntimeFileFailed({ file, cause }) })

/** Replaces the file in one step, so that a reader sees the old or the new file. */
export const writeRuntime = Effect.fnUntraced(function* (dataDir: string, runtime: Runtime) {
  const file = runtimeFile(dataDir)
  yield* failing(file, async () => {
    const draft = `${file}.${randomBytes(4).toString("hex")}`
    await fs.writeFile(draft, `${await encode(runtime)}\n`, { mode: 0o600 })
    await fs.rename(draft, file)
  })
})

/** Reads what runs in `dataDir` now; none when its process has ended. */
export const readRuntime = Effect.fnUntraced(function* (dataDir: string) {
  const file = runtimeFile(dataDir)
  const runtime = yield* failing(file, async () =>
    existsSync(file) ? decode(await fs.readFile(file, "utf8")) : undefined
  )
  return runtime !== undefined && isAlive(runtime.pid) ? Option.some(runtime) : Option.none()
})

/** Removes the file if it belongs to this process. */
export const removeRuntime = Effect.fnUntraced(function* (dataDir: string) {
  const runtime = yield* readRuntime(dataDir)
  if (Option.isSome(runtime) && runtime.value.pid !== process.pid) return
  const file = runtimeFile(dataDir)
  yield* failing(file, () => fs.rm(file, { force: true }))
})
