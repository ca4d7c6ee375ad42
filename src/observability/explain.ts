/** The actual error in one line, for the operator. */
import { Predicate } from "effect"
import { redact } from "../domain/Key.ts"

const maxDepth = 8
const maxLength = 300

/** The innermost error with a message: drivers wrap the error of the system or of the server several times. */
const innermost = (error: unknown, depth = 0): string | undefined => {
  if (depth > maxDepth || !Predicate.isObject(error)) return undefined
  const [first] = "errors" in error && Array.isArray(error.errors) ? error.errors : []
  const inner = ["reason", "cause"].map((name) => (name in error ? Reflect.get(error, name) : undefined))
  for (const next of [...inner, first]) {
    const found = innermost(next, depth + 1)
    if (found !== undefined) return found
  }
  const text = (name: string): string => {
    const value: unknown = Reflect.get(error, name)
    return typeof value === "string" ? value : ""
  }
  const [code, message] = [text("code"), text("message")]
  if (message === "" && code === "") return undefined
  return message === "" || message.includes(code) ? message || code : `${message} (${code})`
}

/** The actual error, on one line and without keys. The operator at the terminal may see it, a client never. */
export const explain = (error: unknown): string => {
  const text = redact(innermost(error) ?? "no answer")
  return text.length <= maxLength ? text : `${text.slice(0, maxLength)}…`
}
