/** The prompt log without a database, for tests: what is kept, at once, for keys that are opted in when it is. */
import { Context, Effect, Layer } from "effect"
import { PromptLog } from "./PromptLog.ts"
import type { PromptRow } from "./row.ts"
import { makeTranscript } from "./transcript.ts"

export interface KeptPrompt extends PromptRow {
  readonly days: number
}

/** The hand of a test on the memory twin. */
export class PromptLogMemory extends Context.Service<
  PromptLogMemory,
  {
    /** by request id */
    readonly rows: ReadonlyMap<string, KeptPrompt>
    /** As a key's owner does; a key nobody spoke of has not opted in. `days` is the key's own retention. */
    optIn(keyId: string, days?: number): Effect.Effect<void>
    optOut(keyId: string): Effect.Effect<void>
  }
>()("tollgate/promptlog/PromptLogMemory") {}

const make = ({ defaultDays }: { readonly defaultDays: number }) =>
  Effect.sync(() => {
    const rows = new Map<string, KeptPrompt>()
    const optedIn = new Map<string, number>()
    const log = PromptLog.of({
      transcript: makeTranscript((row) =>
        Effect.sync(() => {
          const days = optedIn.get(row.key_id)
          if (days !== undefined && !rows.has(row.request_id)) rows.set(row.request_id, { ...row, days })
        })
      )
    })
    const hand = PromptLogMemory.of({
      rows,
      optIn: (keyId, days = defaultDays) => Effect.sync(() => void optedIn.set(keyId, days)),
      optOut: (keyId) => Effect.sync(() => void optedIn.delete(keyId))
    })
    return Context.make(PromptLog, log).pipe(Context.add(PromptLogMemory, hand))
  })

export const layerPromptLogMemory = (options: {
  readonly defaultDays: number
}): Layer.Layer<PromptLog | PromptLogMemory> => Layer.effectContext(make(options))
