/** The models that stay loaded, for all tenants. */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { withoutDefaultTag } from "../domain/modelName.ts"
import { maxPins } from "../gates/queue/QueueStore.ts"
import { mustBe, withRegistryDown } from "./Errors.ts"
import { Pin, type PinsChange } from "./rows.ts"
import * as Values from "./Values.ts"

const decode = Schema.decodeUnknownEffect(Schema.Array(Pin))

export const makePins = (sql: SqlClient.SqlClient) => {
  const read = Effect.suspend(() => sql`SELECT model, hours FROM model_pins ORDER BY model`).pipe(
    Effect.flatMap(decode)
  )

  const changePins = Effect.fnUntraced(
    function* ({ only = false, pin = [], unpin = [] }: PinsChange) {
      const added = yield* Effect.forEach(pin, ({ hours, model }) =>
        Effect.gen(function* () {
          const name = withoutDefaultTag(yield* Values.validate("pin", Values.modelName, model))
          return { model: name, hours: yield* Values.validate("pin-hours", Values.pinHours, hours) }
        })
      )
      // Two changes at once would not see each other's pins.
      yield* sql`LOCK TABLE model_pins IN SHARE ROW EXCLUSIVE MODE`
      for (const model of unpin.map(withoutDefaultTag)) {
        const gone = yield* sql`DELETE FROM model_pins WHERE model = ${model} RETURNING model`
        if (gone.length === 0) return yield* mustBe("unpin", `pinned models, and ${model} is none`)
      }
      if (only) yield* sql`DELETE FROM model_pins`
      for (const { hours, model } of added) {
        yield* sql`DELETE FROM model_pins WHERE model = ${model}`
        yield* sql`INSERT INTO model_pins (model, hours) VALUES (${model}, ${hours})`
      }
      const pins = yield* read
      return pins.length > maxPins ? yield* mustBe("pin", `at most ${maxPins} models in all`) : pins
    },
    sql.withTransaction,
    withRegistryDown
  )

  return { listPins: withRegistryDown(read), changePins }
}
