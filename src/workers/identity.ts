/** Who a worker is. The primary gives it in the environment of the process. */
import cluster from "node:cluster"
import { Option, Schema } from "effect"
import type { Environment } from "../infra/environment.ts"

export const Identity = Schema.Struct({
  /** 1 to `of`; the worker that takes its place has the same number */
  number: Schema.Int,
  /** the number of workers */
  of: Schema.Int,
  /** random, new at each start: its name in the queue and in `tollgate status` */
  id: Schema.String,
  /** whether it checks for all workers that the database can be used */
  first: Schema.Boolean,
  /** marks its request ids (`requestIds.ts`) */
  mark: Schema.Int
})
export type Identity = typeof Identity.Type

const variable = "TOLLGATE_WORKER"
const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Identity))

export const environmentOf = (identity: Identity) => ({ [variable]: JSON.stringify(identity) })

/** Undefined in a process that no primary has started. */
export const readIdentity = (env: Environment): Identity | undefined =>
  cluster.isWorker ? Option.getOrUndefined(decode(env[variable])) : undefined
