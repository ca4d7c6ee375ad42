/** How long a model is asked to think: OpenAI's effort as `think` of Ollama. */
import { Schema } from "effect"
import type { Json } from "../../domain/Inference.ts"

export const Effort = Schema.Literals(["none", "minimal", "low", "medium", "high", "max", "xhigh", "ultra"])

export const thinkOf = (effort: typeof Effort.Type | null | undefined): Json | undefined => {
  switch (effort) {
    case undefined:
    case null:
      return undefined
    case "none":
      return false
    case "minimal":
      return "low"
    case "xhigh":
    case "ultra":
      return "max"
    default:
      return effort
  }
}
