/** The commands of the service itself: they run it, bring its database up to date, and say how it is. */
import { Effect } from "effect"
import { Command } from "effect/cli"
import { SqlClient } from "effect/sql"
import { type MigrationPlan, migrate as runMigrations, planMigrations } from "../../src/infra/Migrations.ts"
import { UnreadableRow } from "../../src/infra/rows.ts"
import { explain } from "../../src/observability/explain.ts"
import { startupError } from "../../src/startup/StartupError.ts"
import type { Replica } from "../../src/replicas/Replicas.ts"
import { version } from "../../src/version.ts"
import type * as Agents from "../checks/agents.ts"
import { type Check, checkTable, failed, ok, warning } from "../checks/Check.ts"
import { alertWebhook } from "../environment.ts"
import { described } from "../help.ts"
import { Reported } from "../exit.ts"
import { Needs } from "../Needs.ts"
import * as flags from "../flags.ts"
import { replicaName } from "../gateways.ts"
import { gatewayUrl, keyFile, readKey } from "./connect.ts"
import { counted, duration, show, tableOf } from "../terminal.ts"

const replicasHint = (failure: unknown): string =>
  failure instanceof UnreadableRow
    ? "delete the row: a running gateway writes it again"
    : "unknown until the database answers"

const failIfAny = (checks: ReadonlyArray<Check>) =>
  checks.some(({ state }) => state === "failed") ? new Reported() : Effect.void

const breakerStates = ["closed", "half-open", "open"]

/** The last report of a replica. null: unknown. */
const stateOf = ({ alive, gauges, host, id, leavesInS, silentS, started, upS, version }: Replica) => {
  const value = (name: string): number | null => gauges[name] ?? null
  const mib = (bytes: number | null) => (bytes === null ? null : bytes / 1_048_576)
  const sum = (name: string): number =>
    Object.entries(gauges).reduce(
      (total, [key, found]) => (key === name || key.startsWith(`${name}{`) ? total + (found ?? 0) : total),
      0
    )
  const loadedModels = Object.entries(gauges).flatMap(([key, loaded]) => {
    const [, model] = /^tollgate_queue_model_loaded\{(.*)\}$/.exec(key) ?? []
    if (model === undefined) return []
    return [{ model, loaded: loaded === 1, waiting: value(`tollgate_queue_model_waiting{${model}}`) ?? 0 }]
  })
  const down = ["database", "cache", "backend"].filter(
    (dependency) => gauges[`tollgate_ready{${dependency}}`] === 0
  )
  return {
    replica: replicaName({ host, id }),
    version,
    started,
    upS: Math.round(upS),
    silentS: Math.round(silentS),
    alive,
    leavesInS: Math.round(leavesInS),
    notReady: down,
    breaker: breakerStates[value("tollgate_breaker_state") ?? -1] ?? null,
    keysRefused: value("tollgate_breaker_open_keys"),
    models: value("tollgate_discovery_models"),
    discoveryAgeS: value("tollgate_discovery_age_seconds"),
    openRequests: value("tollgate_open_leases"),
    waiting: sum("tollgate_queue_depth"),
    atBackend: value("tollgate_queue_places_in_use"),
    loadedModels,
    auditBacklog: value("tollgate_audit_backlog"),
    memoryMiB: mib(value("tollgate_memory_bytes")),
    memoryMaxMiB: mib(value("tollgate_memory_max_bytes"))
  }
}
type State = ReturnType<typeof stateOf>

const figure = (value: number | null, unit = ""): string =>
  value === null ? "-" : `${Math.round(value)}${unit}`

/** The circuit for everybody, and how many keys and tenants are refused by their own. */
const breakerOf = ({ breaker, keysRefused }: State): string =>
  `${breaker ?? "-"}${keysRefused === null || keysRefused === 0 ? "" : `, keys or tenants refused: ${keysRefused}`}`

const readyOf = ({ alive, leavesInS, notReady }: State): string =>
  !alive
    ? `gone; listed for ${duration(leavesInS * 1000)}`
    : notReady.length === 0
      ? "yes"
      : `no: ${notReady.join(", ")}`

/** The models that are loaded or waited for, over all replicas. */
const loadedOf = ({ loadedModels }: State): string =>
  loadedModels
    .map(({ loaded, model, waiting }) => {
      const more = [...(loaded ? [] : ["not loaded"]), ...(waiting > 0 ? [`${waiting} wait`] : [])]
      return more.length === 0 ? model : `${model} (${more.join(", ")})`
    })
    .join(", ") || "-"

const replicaTable = (states: ReadonlyArray<State>) =>
  tableOf(states, {
    REPLICA: ({ replica }) => replica,
    VERSION: ({ version }) => version,
    UP: ({ upS }) => duration(upS * 1000),
    SEEN: ({ silentS }) => `${duration(silentS * 1000)} ago`,
    READY: readyOf,
    BREAKER: breakerOf,
    MODELS: ({ models }) => figure(models),
    "LIST AGE": ({ discoveryAgeS }) => figure(discoveryAgeS, " s"),
    OPEN: ({ openRequests }) => figure(openRequests),
    WAITING: ({ waiting }) => figure(waiting),
    LOADED: loadedOf,
    BACKLOG: ({ auditBacklog }) => figure(auditBacklog),
    MEMORY: ({ memoryMiB, memoryMaxMiB }) => `${figure(memoryMiB)} of ${figure(memoryMaxMiB, " MiB")}`
  })

/** `down`: what has failed already. What follows from it is no second line. */
const replicaChecks = (states: ReadonlyArray<State>, down: ReadonlyArray<string>): ReadonlyArray<Check> => {
  const alive = states.filter((state) => state.alive)
  const isUp = (dependency: string) => !down.includes(dependency)
  const wrong = alive.filter(
    (state) => state.notReady.some(isUp) || (state.breaker === "open" && isUp("backend"))
  )
  const empty = isUp("backend") ? alive.filter(({ models }) => models === 0) : []
  const serving = alive.filter((state) => state.notReady.length === 0 && state.breaker !== "open")
  const versions = new Set(alive.map((state) => state.version))
  return [
    alive.length === 0
      ? failed("replicas", "no gateway runs, or none can report", 'start one with "tollgate serve"')
      : wrong.length > 0
        ? failed(
            "replicas",
            `${wrong.length} of ${alive.length} refuse requests: ${wrong.map(({ replica }) => replica).join(", ")}`,
            "see READY and BREAKER above, and the log of the gateway"
          )
        : ok("replicas", `${serving.length} of ${alive.length} serve`),
    ...(empty.length === 0
      ? []
      : [
          failed(
            "discovery",
            `${empty.length} of ${alive.length} have no models, so they refuse every model with 403`,
            "the model server did not answer for MODEL_DISCOVERY_CACHE_TTL_S, or has no models"
          )
        ]),
    ...(versions.size <= 1
      ? []
      : [
          warning("versions", [...versions].toSorted().join(", "), "normal during an upgrade; else finish it")
        ])
  ]
}

export const status = Command.make(
  "status",
  {},
  Effect.fnUntraced(function* () {
    const needs = yield* Needs
    const [found, replicas] = yield* Effect.all(
      [
        Effect.all(needs.status, { concurrency: "unbounded" }),
        Effect.result(Effect.flatMap(needs.replicas, ({ list }) => list))
      ],
      { concurrency: "unbounded" }
    )
    const states = replicas._tag === "Success" ? replicas.success.map(stateOf) : []
    const own = found.flat()
    const down = own.flatMap(({ name, state }) => (state === "failed" ? name : []))
    const ofReplicas =
      replicas._tag === "Success"
        ? replicaChecks(states, down)
        : down.includes("database")
          ? []
          : [failed("replicas", explain(replicas.failure), replicasHint(replicas.failure))]
    const checks = [...own, ...ofReplicas]
    yield* show(
      { version, replicas: states, checks },
      ...(states.length === 0 ? [] : [replicaTable(states), ""]),
      checkTable(checks)
    )
    yield* failIfAny(checks)
  })
).pipe(
  described(
    "Show the replicas, the stores and the model server; exit 1 when one fails",
    "tollgate status",
    "tollgate status --json"
  )
)

/** Loaded when it is asked for: other commands need no HTTP client. */
const agentChecks = (...[asked]: Parameters<typeof Agents.agentChecks>) =>
  Effect.flatMap(
    Effect.promise(() => import("../checks/agents.ts")),
    ({ agentChecks }) => agentChecks(asked)
  )

export const doctor = Command.make(
  "doctor",
  {
    agents: flags.toggle(
      "agents",
      "Also ask the gateway as a coding agent would: one request that is charged, and what would stop it"
    ),
    url: gatewayUrl("With --agents: the gateway"),
    keyFile,
    model: flags.optionalText("model", "name", "With --agents: the model; else the first of the key")
  },
  Effect.fnUntraced(function* ({ agents, keyFile: file, model, url }) {
    const { doctor } = yield* Needs
    const own = (yield* Effect.all(doctor, { concurrency: "unbounded" })).flat()
    const asked = agents ? yield* agentChecks({ url, model, key: yield* readKey(file) }) : []
    const checks = [...own, ...asked]
    yield* show({ checks }, checkTable(checks))
    yield* failIfAny(checks)
  })
).pipe(
  described(
    "Check settings, stores and model server, and show how to repair what is wrong",
    "tollgate doctor",
    [
      "tollgate doctor --agents --model qwen3-coder:30b --key-file key",
      "Also whether a coding agent gets through"
    ]
  )
)

const test = { kind: "test", text: "Tollgate: this is a test. Warnings of budgets come here." }

export const testAlert = Command.make("test-alert", {}, () =>
  Effect.gen(function* () {
    const { alertWebhookSecret: secret, alertWebhookUrl: url } = yield* alertWebhook
    if (url === undefined)
      return yield* startupError("ALERT_WEBHOOK_URL is not set here: type this where the gateway runs")
    const { post } = yield* Effect.promise(() => import("../../src/observability/webhook.ts"))
    const { outcome, what } = yield* post({ url, secret }, test)
    const how = `${outcome === "delivered" ? "" : "not "}delivered, ${secret === undefined ? "not " : ""}signed`
    yield* show({ outcome, receiver: what }, `The receiver ${what}: ${how}.`)
    if (outcome !== "delivered") return yield* new Reported()
  })
).pipe(described("Send a test message to ALERT_WEBHOOK_URL, which warns of budgets", "tollgate test-alert"))

/** `serve` runs until the process gets a signal. */
export const serve = Command.make("serve", {}, () => Needs.use((needs) => needs.serve)).pipe(
  described("Run the gateway", "tollgate serve")
)

const describePlan = ({ found, known, minimum, pending }: MigrationPlan): string =>
  [
    found === 0 ? "the database has no schema" : `the schema of the database has version ${found}`,
    found > known
      ? `it is newer than this tollgate (${known}): nothing to do`
      : pending.length === 0
        ? "it is up to date: nothing to do"
        : `${counted(pending.length, "migration")} to run: ${pending.join(", ")}`,
    minimum === Math.max(found, known)
      ? "no older version may run on it: to go back, restore a backup"
      : `afterwards every tollgate with schema version ${minimum} or later may run on it`
  ].join("\n")

export const migrate = Command.make(
  "migrate",
  {
    plan: flags.toggle(
      "plan",
      "Show what would run, and which older versions may run afterwards; change nothing"
    )
  },
  Effect.fnUntraced(function* ({ plan }) {
    const database = yield* Needs.use((needs) => needs.database)
    const on = Effect.provideService(SqlClient.SqlClient, database)
    if (plan) {
      const planned = yield* on(planMigrations)
      const { found: schemaVersion, known: knownVersion, minimum: minimumVersion, pending } = planned
      return yield* show({ schemaVersion, knownVersion, pending, minimumVersion }, describePlan(planned))
    }
    const ran = yield* on(runMigrations)
    const count = counted(ran.length, "migration")
    yield* show({ ran }, ran.length === 0 ? "the database is up to date" : `${count}: ${ran.join(", ")}`)
  })
).pipe(
  described(
    "Bring the database schema up to date; safe at any time, also several times at once",
    "DATABASE_URL=postgres://… tollgate migrate",
    "DATABASE_URL=postgres://… tollgate migrate --plan"
  )
)
