/** What commands need of the gateway. It is loaded and made when a command asks for it, and once. */
import { Context, Effect, type Scope } from "effect"
import type { SqlClient } from "effect/sql"
import type { Books } from "../src/admin/books/Books.ts"
import type { Records } from "../src/admin/records/Records.ts"
import type { Registry } from "../src/admin/Registry.ts"
import type { Calendar } from "../src/domain/Calendar.ts"
import type { BackendFailed } from "../src/domain/Errors.ts"
import type { Model } from "../src/domain/Model.ts"
import type { Replicas } from "../src/replicas/Replicas.ts"
import type { Check } from "./checks/Check.ts"

type Made<A> = Effect.Effect<A, Error, Scope.Scope>

export interface Parts {
  /** on a database with the current schema */
  readonly registry: Made<Registry["Service"]>
  /** on a database with the current schema */
  readonly records: Made<Records["Service"]>
  /** on a database with the current schema, and the counters where there is a Redis */
  readonly books: Made<Books["Service"]>
  /** the database, with any schema */
  readonly database: Made<SqlClient.SqlClient>
  /** what the model server has */
  readonly models: Effect.Effect<ReadonlyArray<Model>, BackendFailed | Error>
  /** that of the gateways, on a database with the current schema */
  readonly calendar: Made<Calendar>
  readonly replicas: Made<Replicas["Service"]>
  /** what `status` and `doctor` check; none of them fails */
  readonly status: ReadonlyArray<Effect.Effect<ReadonlyArray<Check>>>
  readonly doctor: ReadonlyArray<Effect.Effect<ReadonlyArray<Check>>>
  /** runs the gateway until it is interrupted */
  readonly serve: Effect.Effect<void, Error>
}

export class Needs extends Context.Service<Needs, Parts>()("tollgate/cli/Needs") {
  static readonly registry = Needs.use(({ registry }) => registry)
  static readonly records = Needs.use(({ records }) => records)
  static readonly replicas = Needs.use(({ replicas }) => replicas)
  static readonly models = Needs.use(({ models }) => models)

  /** A command that asks twice gets the same. */
  static readonly once = (parts: Parts) =>
    Effect.map(
      Effect.all([
        Effect.cached(parts.registry),
        Effect.cached(parts.records),
        Effect.cached(parts.replicas)
      ]),
      ([registry, records, replicas]): Parts => ({ ...parts, registry, records, replicas })
    )
}
