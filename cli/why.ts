/** Says in a sentence why a request ended as it did, and what to do. `src/domain/refusal.ts` writes what is read here. */
import type { RequestRow } from "../src/admin/records/requests.ts"
import { type BackendFault, forbidden, type Gate } from "../src/domain/Errors.ts"
import { limitWords } from "../src/domain/refusal.ts"
import { amount, escapeText, shellWord } from "./terminal.ts"

type Row = Pick<RequestRow, "detail" | "error_type" | "key" | "model" | "status" | "tenant">

const command = (name: string, ...options: ReadonlyArray<string>): string =>
  `tollgate ${[name, ...options].join(" ")}`

const ofKey = ({ key }: Row) => `--key ${key ?? "p"}`
const ofOwner = (scope: string, row: Row) => {
  if (scope === "tenant") return ofTenant(row)
  return scope === "user" ? `${ofKey(row)} --each-user` : ofKey(row)
}
const ofTenant = ({ tenant }: Row) => `--tenant ${tenant === null ? "t" : shellWord(escapeText(tenant))}`
const modelOf = ({ model }: Row) => (model === null ? "this model" : escapeText(model))

const forbiddenSentences: Readonly<Record<(typeof forbidden)[number], (row: Row) => string>> = {
  path: () =>
    "The gateway does not serve this path or method: compare the client's base URL with the endpoints of docs/reference.md.",
  scope: (row) =>
    `The key has no scope for this endpoint: "${command("show-key", `--prefix ${row.key ?? "p"}`)}" shows those it has; a key with others is a new one (create-key --scopes).`,
  "model not allowed": (row) =>
    `${modelOf(row)} is installed, but the key may not use it: when "${command("show-key", `--prefix ${row.key ?? "p"}`)}" shows models of its own, change them ("${command("set-models", ofKey(row), "--models …")}"); else "${command("set-models", ofTenant(row), `--add ${row.model === null ? "m" : shellWord(modelOf(row))}`)}" allows it to the tenant.`,
  "model not installed": (row) =>
    `The model server has no ${modelOf(row)}: pull it there, or tell the user one of "${command("list-models", ofTenant(row))}".`,
  "model list expired": () =>
    `The model server has not told its models for longer than MODEL_DISCOVERY_CACHE_TTL_S: "${command("status")}" says what it answers.`
}

const faults: Readonly<Record<BackendFault | "circuit open", string>> = {
  unreachable: "could not be reached",
  timeout: "did not answer in time",
  status: "answered with an error",
  busy: "was busy",
  redirect: "answered with a redirect",
  protocol: "answered something that is not its protocol",
  reported: "reported an error in its answer",
  empty: "ended its answer before it began",
  refused: "refused the request after its answer had begun",
  cut: "cut its answer off",
  "circuit open": "had failed too often just before, so it was not asked"
}

const gateWords: Readonly<Record<Gate, string>> = {
  KeyStore: "the key",
  Discovery: "the model",
  Limiter: "the limits",
  Budget: "the budgets",
  Queue: "the place in the queue",
  Audit: "the audit row"
}

const options: Readonly<Record<string, string>> = {
  [limitWords.requests]: "--rpm",
  [limitWords.tokens]: "--tpm",
  [limitWords.concurrency]: "--concurrent"
}
const budgetOptions: Readonly<Record<string, string>> = {
  day: "--daily",
  month: "--monthly",
  total: "--total"
}

const has = <K extends string>(names: Readonly<Record<K, unknown>>, name: string): name is K =>
  Object.hasOwn(names, name)

const ofLimit = (what: string, row: Row): string => {
  const [, value = "", unit = "", scope = ""] = /^(\d+) (.*), (\w+)$/.exec(what) ?? []
  if (unit === limitWords.users)
    return `More than ${amount(Number(value))} end users of the key were active within minutes: wait, or give some of them another key.`
  const option = options[unit]
  const reached = `The ${scope}'s limit of ${amount(Number(value))} ${unit} was reached: wait`
  return option === undefined
    ? `${reached}, and look at what its client repeats.`
    : `${reached}, or raise it ("${command("set-limits", ofOwner(scope, row), `${option} n`)}").`
}

const ofBudget = (what: string, row: Row): string => {
  const [, value = "", period = "", scope = "", held] =
    /^(\d+) tokens, (\w+), (\w+)(, held)?$/.exec(what) ?? []
  const owner = ofOwner(scope, row)
  const ends = period === "total" ? "" : `wait for the next ${period} (UTC), or `
  if (held !== undefined) {
    return `Running requests hold what is left of the ${scope}'s budget of ${amount(Number(value))} tokens: the client may try again at once, or raise it ("${command("set-budget", owner, `${budgetOptions[period] ?? "--total"} n`)}").`
  }
  return `The ${scope}'s budget of ${amount(Number(value))} tokens${period === "total" ? "" : ` a ${period}`} is spent: ${ends}raise it ("${command("set-budget", owner, `${budgetOptions[period] ?? "--total"} n`)}").`
}

const ofGate = (what: string): string => {
  const [gate = "", crowded] = what.split(", ")
  if (crowded !== undefined) return "Too many requests came at once: the client may try again at once."
  const words = has(gateWords, gate) ? gateWords[gate] : "something"
  return `The gateway could not decide about ${words}, because a store did not answer: "${command("doctor")}" says which, and the log says why.`
}

const sentences: Readonly<Record<string, (what: string, row: Row) => string>> = {
  request: (what) => `The request is wrong, and its client must change it: ${escapeText(what)}`,
  key: (what) => {
    const [, prefix] = /^(\S+) is not in force$/.exec(what) ?? []
    return prefix === undefined
      ? "The request had no key that is known: check what the client sends as its API key."
      : `The key ${prefix} is disabled, revoked or expired, or its tenant is disabled: "${command("show-key", `--prefix ${prefix}`)}" says which.`
  },
  path: (hint) => `The gateway does not serve this path or method: ${escapeText(hint)}.`,
  body: (what) => `The body had ${what}: send less, or raise MAX_REQUEST_BODY_BYTES.`,
  limit: ofLimit,
  budget: ofBudget,
  queue: () =>
    "The model server had no place in time: wait, or give it more places (BACKEND_MAX_CONCURRENT, QUEUE_MAX_WAIT_MS).",
  "model server": (what) =>
    `The model server ${has(faults, what) ? faults[what] : "failed"}: "${command("status")}" shows it, and the gateway's log says more.`,
  gate: ofGate,
  gateway: (what) =>
    what === "shutting down"
      ? "The gateway was stopping: the client may try again."
      : "The gateway's process died while it ran: its log and the machine's say why."
}

/** Undefined when there is nothing to explain. */
export const whyOf = (row: Row): string | undefined => {
  if (row.status < 400) return undefined
  if (row.status === 499) return "The client left before the end."
  if (row.detail === null) return row.error_type === null ? undefined : row.error_type.replaceAll("_", " ")
  if (row.detail === "*") return "Several requests were refused for different reasons."
  if (has(forbiddenSentences, row.detail)) return forbiddenSentences[row.detail](row)
  const [, kind = "", what = ""] = /^([a-z ]+): (.*)$/s.exec(row.detail) ?? []
  return has(sentences, kind) ? sentences[kind]?.(what, row) : escapeText(row.detail)
}
