/** Says in a sentence why a request ended as it did, and what to do. It reads the refusals of `src/domain/Errors.ts`. */
import type { RequestRow } from "../src/admin/records/requests.ts"
import { backendFaults, type forbidden, gates, ofPeriod } from "../src/domain/Errors.ts"
import { outcomes } from "../src/domain/Outcome.ts"
import { shellWord } from "./shell.ts"
import { amount, escapeText } from "./terminal.ts"

type Row = Pick<RequestRow, "detail" | "end_user" | "error_type" | "key" | "model" | "status" | "tenant">

const command = (...words: ReadonlyArray<string>): string => `"tollgate ${words.join(" ")}"`

const ofKey = ({ key }: Row) => `--key ${key ?? "p"}`
const ofTenant = ({ tenant }: Row) => `--tenant ${tenant === null ? "t" : shellWord(escapeText(tenant))}`
/** `scope`: that of a refusal, `model <name>` for limits of the key for a model. */
const ofOwner = (scope: string, row: Row) => {
  const [kind, model = ""] = scope.split(" ")
  if (kind === "tenant") return ofTenant(row)
  if (kind === "model") return `${ofKey(row)} --model ${shellWord(escapeText(model))}`
  if (kind !== "user") return ofKey(row)
  return `${ofKey(row)} ${row.end_user === null ? "--each-user" : `--user ${userOf(row)}`}`
}
const named = (scope: string, what: string) =>
  scope.startsWith("model ") ? `key's ${what} for ${escapeText(scope.slice(6))}` : `${scope}'s ${what}`
const modelOf = ({ model }: Row) => (model === null ? "this model" : escapeText(model))
const userOf = ({ end_user: user }: Row) => (user === null ? "u" : shellWord(escapeText(user)))
const showKey = ({ key }: Row) => command("show-key", `--prefix ${key ?? "p"}`)

const forbiddenSentences: Readonly<Record<(typeof forbidden)[number], (row: Row) => string>> = {
  path: () =>
    "The gateway does not serve this path or method: compare the client's base URL with the endpoints of docs/reference.md.",
  scope: (row) =>
    `The key has no scope for this endpoint: ${showKey(row)} shows those it has; a key with others is a new one (create-key --scopes).`,
  "model not allowed": (row) =>
    `${modelOf(row)} is installed, but the key may not use it: when ${showKey(row)} shows models of its own, change them (${command("set-models", ofKey(row), "--models …")}); else ${command("set-models", ofTenant(row), `--add ${row.model === null ? "m" : shellWord(modelOf(row))}`)} allows it to the tenant.`,
  "model not installed": (row) =>
    `The model server has no ${modelOf(row)}: pull it there, or tell the user one of ${command("list-models", ofTenant(row))}.`,
  "user blocked": (row) =>
    `The end user ${row.end_user === null ? "" : `${escapeText(row.end_user)} `}of this key is blocked: ${command("unblock-user", ofKey(row), "--user", userOf(row))} lets it in again.`,
  "model list expired": () =>
    `The model server has not told its models for longer than MODEL_DISCOVERY_CACHE_TTL_S: ${command("status")} says what it answers.`
}

const faults = {
  ...backendFaults,
  "circuit open": "had failed too often just before, so it was not asked"
}

const limitOptions: Readonly<Record<string, string>> = {
  "requests a minute": "--rpm",
  "tokens a minute": "--tpm",
  "requests at a time": "--concurrent"
}

const has = <K extends string>(names: Readonly<Record<K, unknown>>, name: string): name is K =>
  Object.hasOwn(names, name)

const ofLimit = (what: string, row: Row): string => {
  const [, value = "", unit = "", scope = ""] = /^(\d+) (.*), (\w+(?: \S+)?)$/.exec(what) ?? []
  const limit = `${amount(Number(value))} ${unit}`
  if (unit === "users at a time")
    return `The key's limit of ${limit} was reached: wait some minutes, or give some of its end users another key.`
  const option = limitOptions[unit]
  const more =
    option === undefined
      ? "and look at what its client repeats"
      : `or raise it (${command("set-limits", ofOwner(scope, row), `${option} n`)})`
  return `The ${named(scope, `limit of ${limit}`)} was reached: wait, ${more}.`
}

const ofBudget = (what: string, row: Row): string => {
  const [, value = "", period = "", scope = "", held] =
    /^(\d+) tokens, (\w+), (\w+(?: \S+?)?)(, held)?$/.exec(what) ?? []
  const tokens = `budget of ${amount(Number(value))} tokens`
  const change = scope.startsWith("model ") ? "set-limits" : "set-budget"
  const option = has(ofPeriod, period) ? ofPeriod[period] : "total"
  const raise = `raise it (${command(change, ofOwner(scope, row), `--${option} n`)}).`
  if (held !== undefined)
    return `Running requests hold what is left of the ${named(scope, tokens)}: the client may try again at once, or ${raise}`
  return option === "total"
    ? `The ${named(scope, tokens)} is spent: ${raise}`
    : `The ${named(scope, `${tokens} a ${period}`)} is spent: wait for the next ${period}, or ${raise}`
}

const ofGate = (what: string): string => {
  const [gate = "", crowded] = what.split(", ")
  if (crowded !== undefined) return "Too many requests came at once: the client may try again at once."
  const { about, asks } = has(gates, gate) ? gates[gate] : { about: "something", asks: "a store" }
  return `The gateway could not decide about ${about}, because ${asks} did not answer in time: ${command("doctor")} says how it is, and the log says why.`
}

const sentences: Readonly<Record<string, (what: string, row: Row) => string>> = {
  request: (what) => `The request is wrong, and its client must change it: ${escapeText(what)}`,
  key: (what) => {
    const [, prefix] = /^(\S+) is not in force$/.exec(what) ?? []
    return prefix === undefined
      ? "The request had no key that is known: check what the client sends as its API key."
      : `The key ${prefix} is disabled, revoked or expired, or its tenant is disabled: ${command("show-key", `--prefix ${prefix}`)} says which.`
  },
  path: (hint) => `The gateway does not serve this path or method: ${escapeText(hint)}.`,
  body: (what) => `The body had ${what}: send less, or raise MAX_REQUEST_BODY_BYTES.`,
  limit: ofLimit,
  budget: ofBudget,
  queue: () =>
    "The model server had no place in time: wait, or give it more places (BACKEND_MAX_CONCURRENT, QUEUE_MAX_WAIT_MS).",
  "model server": (what) =>
    `The model server ${has(faults, what) ? faults[what] : "failed"}: ${command("status")} shows it, and the gateway's log says more.`,
  gate: ofGate,
  gateway: (what) =>
    what === "shutting down"
      ? "The gateway was stopping: the client may try again."
      : what === "stopped by an operator"
        ? "An operator ended it with its key (--stop-running)."
        : "The gateway's process died while it ran: its log and the machine's say why."
}

/** Undefined when there is nothing to explain. */
export const whyOf = (row: Row): string | undefined => {
  if (row.status < 400) return undefined
  if (row.status === outcomes.clientLeft.status) return "The client left before the end."
  if (row.detail === null) return row.error_type === null ? undefined : row.error_type.replaceAll("_", " ")
  if (row.detail === "*") return "Several requests were refused for different reasons."
  if (has(forbiddenSentences, row.detail)) return forbiddenSentences[row.detail](row)
  const [, kind = "", what = ""] = /^([a-z ]+): (.*)$/s.exec(row.detail) ?? []
  return has(sentences, kind) ? sentences[kind]?.(what, row) : escapeText(row.detail)
}
