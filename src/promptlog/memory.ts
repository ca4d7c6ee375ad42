/** The prompt log in memory, for tests. It stores a prompt at once, if its key is opted in at that moment. */
import { Context, Effect, Layer } from "effect"
import { PromptLog } from "./PromptLog.ts"
import type { PromptRow } from "./row.ts"
import { makeTranscript } from "./transcript.ts"

export interface StoredPrompt extends PromptRow {
  readonly days: number
}

/** What a test can read and change in the memory twin. */
export class PromptLogMemory extends Context.Service<
  PromptLogMemory,
  {
    /** by request id */
    readonly rows: ReadonlyMap<string, StoredPrompt>
    /** Opts a key in, as its owner does. A key is not opted in before this. `days` is the key's own retention. */
    optIn(keyId: string, days?: number): Effect.Effect<void>
    optOut(keyId: string): Effect.Effect<void>
  }
>()("tollgate/promptlog/PromptLogMemory") {}

const make = ({ defaultDays }: { readonly defaultDays: number }) =>
  Effect.sync(() => {
    const rows = new Map<string, StoredPrompt>()
    const optedIn = new Map<string, number>()
    const log = PromptLog.of({
      transcript: makeTranscript((row) =>
        Effect.sync(() => {
          const days = optedIn.get(row.key_id)
          if (days !== undefined && !rows.has(row.request_id)) rows.set(row.request_id, { ...row, days })
        })
      )
    })
    const memory = PromptLogMemory.of({
      rows,
      optIn: (keyId, days = defaultDays) => Effect.sync(() => void optedIn.set(keyId, days)),
      optOut: (keyId) => Effect.sync(() => void optedIn.delete(keyId))
    })
    return Context.make(PromptLog, log).pipe(Context.add(PromptLogMemory, memory))
  })

export const layerMemory = (options: {
  readonly defaultDays: number
}): Layer.Layer<PromptLog | PromptLogMemory> => Layer.effectContext(make(options))
