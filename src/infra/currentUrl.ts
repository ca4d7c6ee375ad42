/**
 * The URL of a store. Where it stands in a file (the label of the secret names it), the file is read again for each new connection,
 * as TLS files are: a password that was changed needs no restart. While the file cannot be used, the last good URL is.
 *
 * Only user and password may change. Another server or database would split the books between two stores, because the
 * connections that are open stay where they are.
 */
import { Effect, Redacted, Result } from "effect"
import { readSecret } from "./environment.ts"
import { OutageLog } from "./OutageLog.ts"
import { makeMonotonicMs } from "./time.ts"

const withoutCredentials = (text: string): string => text.replace(/\/\/[^/?#]*@/, "//")

/** An escape that cannot be decoded would be an exception in a client. */
const isOfSameStore = (text: string, first: string): boolean =>
  withoutCredentials(text) === withoutCredentials(first) &&
  Result.isSuccess(Result.try(() => decodeURIComponent(text)))

export const makeCurrentUrl = Effect.fnUntraced(function* (url: Redacted.Redacted) {
  const run = Effect.runForkWith(yield* Effect.context<never>())
  const log = new OutageLog(yield* makeMonotonicMs, { remindMs: 60_000 })
  const { label: file } = url
  let last = url
  return (): Redacted.Redacted => {
    if (file === undefined) return url
    const text = readSecret(file)
    const isUsed = text !== undefined && isOfSameStore(text, Redacted.value(url))
    if (isUsed) last = Redacted.make(text)
    const fault = text === undefined ? "it cannot be read" : "it is no URL of the same store"
    const warn = log.failed(() => Effect.logWarning("file with the url of a store not used", { file, fault }))
    run(isUsed ? log.over(Effect.void) : warn)
    return last
  }
})
