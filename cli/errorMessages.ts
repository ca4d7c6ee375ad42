/**
 * One line for each error of a command. It names what the operator can change. Causes, stacks and typed values are left
 * out, because they may contain a secret.
 */
import { Data } from "effect"
import { CliError } from "effect/cli"
import { isSqlError } from "effect/sql/SqlError"
import { StartupError } from "../src/startup/StartupError.ts"
import { BackendFailed } from "../src/domain/Errors.ts"
import { MigrationFailed, SchemaMismatch } from "../src/infra/Migrations.ts"
import { explain } from "../src/observability/explain.ts"
import { RuntimeFileFailed } from "../src/infra/embedded/RuntimeFile.ts"
import { isAdminError, RegistryDown } from "../src/admin/Errors.ts"
import { innermost } from "../src/infra/errorCode.ts"
import { amount } from "./terminal.ts"

/** The file of `apply` cannot be used. */
export class FileInvalid extends Data.TaggedError("FileInvalid")<{
  readonly file: string
  readonly problem: string
}> {
  override readonly message = `${this.file}: ${this.problem}`
}

/** `searched`: number of the newest requests whose client's id was compared. */
export class UnknownRequest extends Data.TaggedError("UnknownRequest")<{
  readonly id: string
  readonly searched: number
}> {
  override readonly message = `no request ${JSON.stringify(this.id)}; by the client's own id the newest ${amount(this.searched)} are searched`
}

/** An error whose message is written for operators. */
const isTold = (error: unknown): error is Error =>
  isAdminError(error) ||
  [FileInvalid, RuntimeFileFailed, SchemaMismatch, UnknownRequest].some((one) => error instanceof one)

/** SQLSTATE: a table or column is missing, so the migrations were not run. */
const schemaStates = new Set(["42P01", "42703"])

const databaseMessage = (cause: unknown): string => {
  if (schemaStates.has(innermost(cause)?.code ?? ""))
    return 'the database has no tollgate schema: run "tollgate migrate"'
  if (!isSqlError(cause)) return "the database gave an unexpected answer"
  switch (cause.reason._tag) {
    case "ConnectionError":
      return `the database cannot be reached: ${explain(cause)}. Check DATABASE_URL, and that the database runs`
    case "AuthenticationError":
    case "AuthorizationError":
      return "the database refused the user of DATABASE_URL, or demands TLS (sslmode) or a client certificate (sslcert)"
    case "StatementTimeoutError":
    case "LockTimeoutError":
      return "the database took too long: try again"
    default:
      return "the database failed: try again, and look at its log"
  }
}

/** `"day" | "month" | "total"` as `day, month or total`. */
const choices = (expected: string): string => {
  const parts = expected.split(" | ").map((part) => part.replaceAll('"', ""))
  return parts.length === 1 ? expected : `${parts.slice(0, -1).join(", ")} or ${parts.at(-1)}`
}

/** The option for a key has two names (`flags.key`), and the error does not tell which one was typed. */
const optionText = (option: string): string => {
  const name = option.replace(/^-+/, "")
  return name === "prefix" || name === "key" ? "--key (or --prefix)" : `--${name}`
}

/** The commands that a name may mean: the one that is two letters from it, else those about the same thing. */
const meantBy = (
  name: string,
  suggestions: ReadonlyArray<string>,
  commands: ReadonlyArray<string>
): string => {
  const thing = name.slice(name.lastIndexOf("-"))
  const meant =
    suggestions.length > 0 ? suggestions.slice(0, 1) : commands.filter((one) => one.endsWith(thing))
  return meant.length === 0 ? "" : `; did you mean ${choices(meant.slice(0, 3).join(" | "))}?`
}

const usage = (error: CliError.CliError, commands: ReadonlyArray<string> = []): string => {
  switch (error._tag) {
    case "MissingOption":
      return `${optionText(error.option)} is required`
    case "InvalidValue":
      // The name of a type or of a placeholder stands for a value that is missing.
      if (/^[a-z|]+$/.test(error.expected)) return `${optionText(error.option)} needs a value`
      return `${error.kind === "argument" ? error.option : optionText(error.option)} must be ${/^Expected .*(?:integer|number)$/.test(error.expected) ? "a whole number" : choices(error.expected)}`
    case "UnrecognizedOption": {
      const suggestion = error.suggestions[0]
      return `unknown option ${error.option}${suggestion === undefined ? "" : `; did you mean ${suggestion}?`}`
    }
    case "UnknownSubcommand":
      return `unknown command ${JSON.stringify(error.subcommand.slice(0, 40))}${meantBy(error.subcommand, error.suggestions, commands)}`
    case "UnexpectedArgument":
      return "unexpected argument: values go after their --option"
    default:
      return error.message.split("\n")[0] ?? "wrong usage"
  }
}

/** What is wrong with the command line, and which help to read. */
export const usageMessage = (
  commandPath: ReadonlyArray<string>,
  error: CliError.CliError | undefined,
  commands: ReadonlyArray<string>
): string =>
  `${error === undefined ? "wrong usage" : usage(error, commands)} (see ${commandPath.join(" ")} --help)`

const errorMessage = (error: unknown): string => {
  if (error instanceof RegistryDown || error instanceof MigrationFailed) return databaseMessage(error.cause)
  if (error instanceof BackendFailed) return "the model server did not answer: check BACKEND_URL"
  if (isSqlError(error)) return databaseMessage(error)
  if (CliError.isCliError(error)) return usage(error)
  return isTold(error) ? error.message : "internal error"
}

/** One line, or one line for each problem with the settings. */
export const errorMessages = (error: unknown): ReadonlyArray<string> =>
  error instanceof StartupError ? error.lines : [errorMessage(error)]
