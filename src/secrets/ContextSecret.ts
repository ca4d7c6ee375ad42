/** The secret that seals contexts. All replicas share it, and it survives a restart: `migrations/0001_schema.ts` makes it. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Context, Effect, Layer, Schema } from "effect"
import { Unavailable } from "../domain/Errors.ts"
import { oneRow } from "../infra/rows.ts"
import { timeoutDetached } from "../infra/time.ts"

const read = oneRow({ hex: Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/)) })

const make = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  let secret: Buffer | undefined
  const load = read(
    sql`SELECT encode(secret, 'hex') AS hex FROM sealing_secrets WHERE purpose = 'context'`
  ).pipe(
    timeoutDetached("500 millis"),
    Effect.map(({ hex }) => (secret = Buffer.from(hex, "hex"))),
    Effect.mapError((cause) => new Unavailable({ gate: "KeyStore", cause }))
  )
  return {
    /** 32 bytes. Read once, then remembered. Fails with `Unavailable` when the first read gets no answer. */
    read: Effect.suspend(() => (secret === undefined ? load : Effect.succeed(secret)))
  }
})

export class ContextSecret extends Context.Service<ContextSecret>()("tollgate/secrets/ContextSecret", {
  make
}) {
  static readonly layer: Layer.Layer<ContextSecret, never, PgClient.PgClient> = Layer.effect(
    ContextSecret,
    make
  )
}
