/** The file of `report --price`. */
import { Effect, Record, Schema } from "effect"
import { parse } from "yaml"
import type { Price } from "../src/admin/records/Records.ts"
import { FileInvalid } from "./errorMessages.ts"
import { readText } from "./files.ts"

const Amount = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1_000_000 }))

const Prices = Schema.Struct({
  currency: Schema.optionalKey(Schema.String.check(Schema.isPattern(/^\S{1,8}$/))),
  models: Schema.Record(
    Schema.String,
    Schema.Struct({ in: Amount, out: Amount, cached: Schema.optionalKey(Amount) })
  )
})
const decode = Schema.decodeUnknownEffect(Prices, { onExcessProperty: "error" })

export interface PriceList {
  readonly currency: string | undefined
  readonly prices: ReadonlyArray<Price>
}

/** YAML or JSON. A cached token costs as much as another of the prompt, unless the file says less. */
export const readPrices = Effect.fnUntraced(function* (file: string) {
  const text = yield* readText(file, 1_048_576)
  const read = Effect.flatMap(Effect.try({ try: (): unknown => parse(text), catch: () => "no YAML" }), decode)
  const { currency, models } = yield* Effect.mapError(
    read,
    () =>
      new FileInvalid({
        file,
        problem:
          'it must have prices of a million tokens by model: models: { llama3.2:3b: { in: 0.1, out: 0.4, cached: 0.01 }, "*": { in: 1, out: 2 } }'
      })
  )
  const prices = Record.toEntries(models).map(([model, price]): Price => ({
    model,
    in: price.in,
    out: price.out,
    cached: price.cached ?? price.in
  }))
  return { currency, prices } satisfies PriceList
})
