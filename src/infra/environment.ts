/**
 * Prepares the environment for the settings: reads secrets from files, and finds misspelt names.
 *
 * *Details* `DATABASE_URL_FILE=/run/secrets/database` gives `DATABASE_URL` the file's content without its last line
 * break, as Docker and Kubernetes mount secrets. A name is taken for a misspelt setting when it has another unit or number, or when one or two letters differ
 * and the setting itself is absent: a platform that sets `REDIS_URI` beside `REDIS_URL` starts.
 */
import { readFileSync, statSync } from "node:fs"

export type Environment = Readonly<Record<string, string | undefined>>

interface Problem {
  readonly setting: string
  readonly given: string
  readonly expected: string
}

/** No URL is longer. A large file named by mistake is refused at once. */
const maxFileBytes = 65_536
/** A shorter name is too similar to names of other programs, as `DATA_DIR` to `DATADIR`. */
const minGuessedLength = 9

const isSet = (env: Environment, name: string): boolean => env[name] !== undefined && env[name] !== ""
/** A secret counts as given when its file is given, and the reverse. */
const isGiven = (env: Environment, name: string): boolean =>
  isSet(env, name) || isSet(env, `${name}_FILE`) || isSet(env, name.replace(/_FILE$/, ""))

/** undefined: the file cannot be read, is empty or too long */
const readSecret = (file: string): string | undefined => {
  try {
    const about = statSync(file)
    if (!about.isFile() || about.size > maxFileBytes) return undefined
    const text = readFileSync(file, "utf8").replace(/\r?\n$/, "")
    return text === "" ? undefined : text
  } catch {
    return undefined
  }
}

/** Returns the environment with the secrets of all `…_FILE` variables. */
export const readSecretFiles = (given: Environment, secrets: ReadonlyArray<string>) => {
  const env: Record<string, string | undefined> = { ...given }
  const problems: Array<Problem> = []
  for (const name of secrets) {
    const variable = `${name}_FILE`
    const file = given[variable]
    if (file === undefined || file === "") continue
    if (isSet(given, name)) {
      problems.push({ setting: variable, given: `${name} as well`, expected: "one of the two" })
      continue
    }
    const secret = readSecret(file)
    if (secret === undefined) {
      problems.push({
        setting: variable,
        given: "a file that is missing, unreadable, empty or longer than 64 KiB",
        expected: `a file with the value of ${name}`
      })
    } else env[name] = secret
  }
  return { env, problems }
}

/** Edit distance of two names, at most `limit + 1`: letters replaced, left out, added, or swapped with the next. */
const differences = (a: string, b: string, limit: number): number => {
  if (Math.abs(a.length - b.length) > limit) return limit + 1
  let before: ReadonlyArray<number> = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const same = a[i - 1] === b[j - 1]
      const replaced = (last[j - 1] ?? 0) + (same ? 0 : 1)
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      row.push(
        Math.min(
          replaced,
          (last[j] ?? 0) + 1,
          (row[j - 1] ?? 0) + 1,
          swapped ? (before[j - 2] ?? 0) + 1 : replaced
        )
      )
    }
    before = last
    last = row
  }
  return last[b.length] ?? limit + 1
}

/** `AUDIT_RETENTION` and `TRUSTED_PROXY` as `AUDIT_RETENTION_DAYS` and `TRUSTED_PROXIES`: without a unit, in the singular. */
const withoutForm = (name: string): string =>
  name
    .replace(/_(?:S|MS|DAYS|BYTES)$/, "")
    .split("_")
    .map((word) => word.replace(/IES$/, "Y").replace(/(?<=..)S$/, ""))
    .join("_")

/** A single word is too common: `PORTS`, `HOSTS` and the like belong to other programs. */
const differsInForm = (name: string, setting: string): boolean =>
  name.includes("_") && withoutForm(name) === withoutForm(setting)

/** Finds variables that are probably misspelt settings. `names` are all settings, `secrets` those with a `…_FILE`. */
export const findMisspelt = (
  given: Environment,
  names: ReadonlyArray<string>,
  secrets: ReadonlyArray<string>
): ReadonlyArray<Problem> => {
  const allNames = new Set([...names, ...secrets.map((name) => `${name}_FILE`)])
  const unknown = Object.keys(given).filter((name) => !allNames.has(name) && isSet(given, name))
  if (unknown.length === 0) return []
  const absent = [...allNames].filter((name) => name.length >= minGuessedLength && !isGiven(given, name))
  const problems: Array<Problem> = []
  for (const name of unknown) {
    if (name.endsWith("_FILE") && allNames.has(name.slice(0, -"_FILE".length))) {
      problems.push({
        setting: name,
        given: "a file for a setting that is no secret",
        expected: `the value itself in ${name.slice(0, -"_FILE".length)}`
      })
      continue
    }
    const similar = absent.find(
      (one) => differences(name, one, 2) <= (one.length < 12 ? 1 : 2) || differsInForm(name, one)
    )
    if (similar !== undefined) {
      problems.push({ setting: name, given: "no setting of this name", expected: `perhaps ${similar}` })
    }
  }
  return problems
}
