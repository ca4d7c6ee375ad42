import { Predicate } from "effect"

/** The code of an error of Node or a client, such as `ENOENT` or `ECONNREFUSED`; undefined: it has none. */
export const codeOf = (cause: unknown): string | undefined =>
  cause instanceof Error && "code" in cause ? String(cause.code) : undefined

const maxDepth = 8

type CodeAndMessage = { readonly code: string; readonly message: string }

/** Code and message of the innermost error that has one: drivers wrap the error of the system or of the server several times. */
export const innermost = (error: unknown, depth = 0): CodeAndMessage | undefined => {
  if (depth > maxDepth || !Predicate.isObject(error)) return undefined
  const [first] = "errors" in error && Array.isArray(error.errors) ? error.errors : []
  const inner = ["reason", "cause"].map((name): unknown => Reflect.get(error, name))
  for (const next of [...inner, first]) {
    const found = innermost(next, depth + 1)
    if (found !== undefined) return found
  }
  const [code = "", own = "", cause = ""] = ["code", "message", "cause"]
    .map((name): unknown => Reflect.get(error, name))
    .map((value) => (typeof value === "string" ? value : ""))
  const message = own === "" ? cause : own
  return message === "" && code === "" ? undefined : { code, message }
}
