/**
 * One line for each error of a command. It names what the operator can change. Causes, stacks and typed values are left
 * out, because they may contain a secret.
 */
import { Data, Predicate, Schema } from "effect"
import { CliError } from "effect/cli"
import { isSqlError } from "effect/sql/SqlError"
import { StartupError } from "../src/startup/StartupError.ts"
import { BackendFailed } from "../src/domain/Errors.ts"
import { MigrationFailed, SchemaMismatch } from "../src/infra/Migrations.ts"
import { UnreadableRow } from "../src/infra/rows.ts"
import { explain } from "../src/observability/explain.ts"
import { RuntimeFileFailed } from "../src/infra/embedded/RuntimeFile.ts"
import * as Registry from "../src/admin/Errors.ts"
import { amount, counted } from "./terminal.ts"

/** The file of `apply` cannot be used. */
export class FileInvalid extends Data.TaggedError("FileInvalid")<{
  readonly file: string
  readonly problem: string
}> {}

/** `searched`: number of the newest requests whose client's id was compared. */
export class UnknownRequest extends Data.TaggedError("UnknownRequest")<{
  readonly id: string
  readonly searched: number
}> {}

const isCoded = Schema.is(Schema.Struct({ code: Schema.String }))

/** SQLSTATE 42P01 and 42703: a table or column is missing, so the migrations were not run. */
const schemaStates = new Set(["42P01", "42703"])

const mentionsMissingSchema = (cause: unknown, depth = 4): boolean =>
  (isCoded(cause) && schemaStates.has(cause.code)) ||
  (depth > 0 &&
    Predicate.isObjectKeyword(cause) &&
    (("reason" in cause && mentionsMissingSchema(cause.reason, depth - 1)) ||
      ("cause" in cause && mentionsMissingSchema(cause.cause, depth - 1))))

const databaseMessage = (cause: unknown): string => {
  if (mentionsMissingSchema(cause)) return 'the database has no tollgate schema: run "tollgate migrate"'
  if (cause instanceof MigrationFailed) return databaseMessage(cause.cause)
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

/** Each of the two names of an option for a key may have been written (`flags.prefix`). */
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
  if (error instanceof Registry.UnknownTenant) return `unknown tenant ${JSON.stringify(error.tenant)}`
  if (error instanceof Registry.UnknownKey) return `unknown key prefix ${error.prefix}`
  if (error instanceof Registry.DuplicateTenant)
    return `tenant ${JSON.stringify(error.tenant)} exists already`
  if (error instanceof Registry.DuplicateKey) {
    return `the tenant has a live key named ${JSON.stringify(error.label)}: ${error.prefix}. Use another name, revoke that key, or give --allow-duplicate`
  }
  if (error instanceof Registry.TenantInUse) {
    return error.keys > 0
      ? `tenant ${JSON.stringify(error.tenant)} has ${counted(error.keys, "key")}, revoked ones included: it can be disabled, not deleted`
      : `tenant ${JSON.stringify(error.tenant)} has used tokens, and reports need its name: it can be disabled, not deleted`
  }
  if (error instanceof Registry.RevokedKey) return `key ${error.prefix} is revoked and cannot be changed`
  if (error instanceof Registry.InvalidValue) return `--${error.field} must be ${error.expected}`
  if (error instanceof UnknownRequest) {
    return `no request ${JSON.stringify(error.id)}; by the client's own id the newest ${amount(error.searched)} are searched`
  }
  if (error instanceof FileInvalid) return `${error.file}: ${error.problem}`
  if (error instanceof Registry.CountersDown)
    return "the counters cannot be read: check REDIS_URL, and that Redis runs"
  if (error instanceof Registry.RegistryDown) return databaseMessage(error.cause)
  if (error instanceof MigrationFailed) return databaseMessage(error.cause)
  if (error instanceof SchemaMismatch) return error.message
  if (error instanceof RuntimeFileFailed) return error.message
  if (error instanceof UnreadableRow) return error.message
  if (error instanceof BackendFailed) return "the model server did not answer: check BACKEND_URL"
  if (isSqlError(error)) return databaseMessage(error)
  if (CliError.isCliError(error)) return usage(error)
  return "internal error"
}

/** One line, or one line for each problem with the settings. */
export const errorMessages = (error: unknown): ReadonlyArray<string> =>
  error instanceof StartupError ? error.lines : [errorMessage(error)]
