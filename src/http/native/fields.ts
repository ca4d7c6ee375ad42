/** Fields that chat and generate of the native surface have in common (ollama-wire §1.3). */
import { Schema } from "effect"

export const base64 = Schema.String.check(
  Schema.isPattern(/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/, {
    expected: "base64 without a data: prefix"
  })
)

export const Format = Schema.Union([Schema.Literals(["json", ""]), Schema.JsonObject])

export const Think = Schema.Union([Schema.Boolean, Schema.Literals(["low", "medium", "high", "max"])])

export const TopLogprobs = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 20 }))
