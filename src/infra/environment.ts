/**
 * Prepares the environment for the settings: reads secrets from files, and finds misspelt names.
 *
 * *Details* `DATABASE_URL_FILE=/run/secrets/database` gives `DATABASE_URL` the file's content without its last line
 * break, as Docker and Kubernetes mount secrets.
 */
import { readFileSync, statSync } from "node:fs"

export type Environment = Readonly<Record<string, string | undefined>>

export interface Problem {
  readonly setting: string
  readonly given: string
  readonly expected: string
}

/** No URL is longer. A large file named by mistake is refused at once. */
const maxFileBytes = 65_536

const isSet = (env: Environment, name: string): boolean => env[name] !== undefined && env[name] !== ""

/** undefined: the file cannot be read, is empty or too long */
export const readSecret = (file: string): string | undefined => {
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

/** Whether `a` becomes `b` when at most `letters` letters are replaced, left out, added, or swapped with the next. */
export const isWithin = (letters: number, a: string, b: string): boolean => {
  if (a === b) return true
  if (letters === 0 || Math.abs(a.length - b.length) > letters) return false
  if (a[0] === b[0]) return isWithin(letters, a.slice(1), b.slice(1))
  return (
    isWithin(letters - 1, a.slice(1), b.slice(1)) ||
    isWithin(letters - 1, a.slice(1), b) ||
    isWithin(letters - 1, a, b.slice(1)) ||
    (a[0] === b[1] && a[1] === b[0] && isWithin(letters - 1, a.slice(2), b.slice(2)))
  )
}

/** `HOME` is two letters from `HOST`, so a name as short as that is only looked for in what is one letter away. */
const isMisspelt = (name: string, setting: string): boolean =>
  isWithin(setting.length > 4 ? 2 : 1, name, setting)

/** `AUDIT_RETENTION` and `TRUSTED_PROXY` as `AUDIT_RETENTION_DAYS` and `TRUSTED_PROXIES`: without a unit, in the singular. */
const withoutForm = (name: string): string =>
  name
    .replace(/_(?:S|MS|DAYS|BYTES)$/, "")
    .split("_")
    .map((word) => word.replace(/IES$/, "Y").replace(/(?<=..)S$/, ""))
    .join("_")

const differsInForm = (name: string, setting: string): boolean => withoutForm(name) === withoutForm(setting)

/**
 * Finds variables that are no settings and look like one, whether that one is given or not. `names` are all settings, `secrets`
 * those with a `…_FILE`. What Docker and Kubernetes set by themselves is more than two letters from every setting.
 */
export const findMisspelt = (
  given: Environment,
  names: ReadonlyArray<string>,
  secrets: ReadonlyArray<string>
): ReadonlyArray<Problem> => {
  const known = [...names, ...secrets.map((name) => `${name}_FILE`)]
  return Object.keys(given).flatMap((name): ReadonlyArray<Problem> => {
    if (known.includes(name) || !isSet(given, name)) return []
    const setting = name.replace(/_FILE$/, "")
    if (setting !== name && known.includes(setting)) {
      return [
        {
          setting: name,
          given: "a file for a setting that is no secret",
          expected: `the value itself in ${setting}`
        }
      ]
    }
    const meant = known.find((one) => isMisspelt(name, one)) ?? known.find((one) => differsInForm(name, one))
    return meant === undefined
      ? []
      : [{ setting: name, given: "no setting of this name", expected: `perhaps ${meant}` }]
  })
}
