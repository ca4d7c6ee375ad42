/** One attack: what it does to a gateway of its own, and what comes of it. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import type { Effect, Scope } from "effect"
import type { Registry } from "../../../src/admin/Registry.ts"
import type { Meter } from "../../../src/gates/meter/Meter.ts"
import type { Arena } from "../Arena.ts"
import type { Row, Rows } from "../figures.ts"

export interface Assault {
  /** of the list in `docs/hardening.md` */
  readonly point: number
  readonly name: string
  readonly run: (
    row: Rows
  ) => Effect.Effect<ReadonlyArray<Row>, unknown, Arena | Meter | PgClient.PgClient | Registry | Scope.Scope>
}
