/** What the primary and its workers ask each other. Each message is checked when it arrives. */
import { Schema } from "effect"

export interface Procedure<A, B> {
  readonly name: string
  readonly input: Schema.Codec<A>
  readonly output: Schema.Codec<B>
}

const procedure = <A, B>(name: string, input: Schema.Codec<A>, output: Schema.Codec<B>): Procedure<A, B> => ({
  name,
  input,
  output
})

const Party = Schema.Struct({ keyId: Schema.String, tenantId: Schema.String })
const Pass = Schema.Struct({ generation: Schema.Finite, probe: Schema.UndefinedOr(Schema.Finite) })
const View = Schema.Struct({ closed: Schema.Boolean, generation: Schema.Finite, hasStreak: Schema.Boolean })
const Report = Schema.Struct({
  party: Party,
  pass: Pass,
  outcome: Schema.Literals(["success", "failure", "ignored"])
})
const Sightings = Schema.Array(Schema.Struct({ party: Party, agoMs: Schema.Finite }))
const Seen = Schema.Struct({ served: Sightings, asked: Sightings })

const Readiness = Schema.Struct({
  stopping: Schema.Boolean,
  database: Schema.Boolean,
  cache: Schema.Boolean,
  backend: Schema.Boolean,
  modelsExpired: Schema.Boolean,
  workersFailing: Schema.Boolean
})

export const Account = Schema.Struct({ group: Schema.String, key: Schema.String })

/** A worker that died, and what the others need to give back all that it held. */
export const Casualty = Schema.Struct({
  id: Schema.String,
  mark: Schema.Int,
  accounts: Schema.Array(Account)
})
export type Casualty = typeof Casualty.Type

/** Metrics as plain data (`getMetricsAsJSON` of prom-client). Their values may be tens of thousands, so they are not checked. */
const Snapshot = Schema.Array(
  Schema.StructWithRest(
    Schema.Struct({ name: Schema.String, aggregator: Schema.String, values: Schema.Unknown }),
    [Schema.Record(Schema.String, Schema.Unknown)]
  )
)
export type Snapshot = typeof Snapshot.Type

/** A worker asks the primary. */
export const toPrimary = {
  /** it listens on this address */
  listening: procedure("listening", Schema.String, Schema.Void),
  /** it cannot start: what the primary prints, and its exit code */
  failed: procedure(
    "failed",
    Schema.Struct({ lines: Schema.Array(Schema.String), exitCode: Schema.Int }),
    Schema.Void
  ),
  /** its first request of an account */
  serves: procedure("serves", Account, Schema.Void),
  /** its last figures, before it ends */
  lastSnapshot: procedure("lastSnapshot", Snapshot, Schema.Void),
  exposition: procedure("exposition", Schema.Void, Schema.String),
  readiness: procedure("readiness of all", Schema.Void, Readiness),
  circuitView: procedure("circuitView", Schema.Void, View),
  circuitState: procedure("circuitState", Schema.Void, Schema.Literals(["closed", "open", "half-open"])),
  admit: procedure("admit", Party, Schema.Union([Schema.Finite, Pass])),
  waitMs: procedure("waitMs", Party, Schema.Finite),
  began: procedure("began", Schema.Struct({ party: Party, pass: Pass }), Pass),
  report: procedure("report", Report, Schema.Void),
  seen: procedure("seen", Seen, Schema.Void)
}

/** The primary asks a worker. */
export const toWorker = {
  ping: procedure("ping", Schema.Void, Schema.Void),
  snapshot: procedure("snapshot", Schema.Void, Snapshot),
  readiness: procedure("readiness", Schema.Void, Readiness),
  heal: procedure("heal", Casualty, Schema.Void),
  circuit: procedure("circuit", View, Schema.Void),
  /** `replaced`: another worker listens already, so this one stops listening at once */
  stop: procedure("stop", Schema.Struct({ replaced: Schema.Boolean }), Schema.Void)
}
