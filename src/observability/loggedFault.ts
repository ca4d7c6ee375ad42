/** What log lines say of a failed call of the model server. */
import { Cause } from "effect"
import { BackendFailed } from "../domain/Errors.ts"
import { codeOf } from "../infra/errorCode.ts"

/** The code of the innermost error that has one, such as `ECONNREFUSED`. */
const innermostCode = (error: unknown, depth = 8): string | undefined => {
  if (!(error instanceof Error) || depth === 0) return undefined
  const code = codeOf(error)
  return (
    innermostCode(error.cause, depth - 1) ?? (/^[A-Z][A-Z0-9_]{1,40}$/.test(code ?? "") ? code : undefined)
  )
}

/** What a log line says of a failed call. The text of its cause is left out, because it names addresses. */
export const loggedFault = ({ cause, fault }: BackendFailed): object => {
  const code = innermostCode(cause)
  return code === undefined ? { fault } : { fault, code }
}

/**
 * The same of the cause of a task; `otherwise`: the fault when the task failed before the call or after it. A defect is logged
 * whole.
 */
export const loggedCause = (cause: Cause.Cause<unknown>, otherwise: string): object => {
  if (Cause.hasDies(cause)) return cause
  const error = Cause.squash(cause)
  return error instanceof BackendFailed ? loggedFault(error) : { fault: otherwise }
}
