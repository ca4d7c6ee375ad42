/** The actual error in one line, for the operator. */
import { redact } from "../domain/Key.ts"
import { innermost } from "../infra/errorCode.ts"

const maxLength = 300

/** The actual error, on one line and without keys. The operator at the terminal may see it, a client never. */
export const explain = (error: unknown): string => {
  const { code, message } = innermost(error) ?? { code: "", message: "no answer" }
  const text = redact(message === "" || message.includes(code) ? message || code : `${message} (${code})`)
  return text.length <= maxLength ? text : `${text.slice(0, maxLength)}…`
}
