/** Reads the files that an operator names. */
import { ByteSize, Effect, FileSystem, Stdio, Stream } from "effect"
import { FileInvalid } from "./errorMessages.ts"

/** Reads and writes YAML. Loaded when it is asked for: most commands need none. */
export const yaml = Effect.promise(() => import("./yaml.ts"))

/** A file as text; `-` is stdin. */
export const readText = Effect.fnUntraced(function* (file: string, maxBytes: number) {
  const invalid = (problem: string) => new FileInvalid({ file, problem })
  const bytes = file === "-" ? (yield* Stdio.Stdio).stdin : (yield* FileSystem.FileSystem).stream(file)
  const chunks = yield* bytes.pipe(
    Stream.mapError(() => invalid("the file cannot be read")),
    Stream.limitBytes(ByteSize.bytes(maxBytes), () =>
      Stream.fail(invalid(`the file has more than ${maxBytes} bytes`))
    ),
    Stream.runCollect
  )
  return yield* Effect.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks)),
    catch: () => invalid("the text is not UTF-8")
  })
})
