/** Fields of both chat and generate on the native surface. */
import { Schema } from "effect"
import { wholeIn } from "../bounded.ts"

export const Format = Schema.Union([Schema.Literals(["json", ""]), Schema.JsonObject])

export const Think = Schema.Union([Schema.Boolean, Schema.Literals(["low", "medium", "high", "max"])])

export const maxTopLogprobs = 20

export const TopLogprobs = wholeIn([0, maxTopLogprobs])
