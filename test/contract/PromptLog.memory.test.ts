import { Effect, Layer } from "effect"
import { layerMemory as layerPromptLogMemory, PromptLogMemory } from "../../src/promptlog/memory.ts"
import { callerOf } from "../support/records.ts"
import { defaultDays, Kept, suite } from "./PromptLog.ts"

const layerKept = Layer.effect(
  Kept,
  Effect.map(PromptLogMemory, (memory) => ({
    row: (requestId) =>
      Effect.sync(() => {
        const row = memory.rows.get(requestId)
        if (row === undefined) return undefined
        const { answer, days, endpoint, prompt, truncated } = row
        return { prompt, answer, truncated, endpoint, days }
      }),
    optedIn: (days) =>
      Effect.suspend(() => {
        const caller = { ...callerOf(), promptLogDays: days ?? defaultDays }
        return Effect.as(memory.optIn(caller.keyId, days), caller)
      }),
    optOut: ({ keyId }) => memory.optOut(keyId)
  }))
)

suite("memory", Layer.provideMerge(layerKept, layerPromptLogMemory({ defaultDays })))
