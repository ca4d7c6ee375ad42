/** The prompt log without a database, for tests: what is kept, at once, for keys that are opted in when it is. */
import { Context, Effect, Layer } from "effect"
import { PromptLog } from "./PromptLog.ts"
import { AnswerText } from "./PromptLogText.ts"
import { type PromptRow, promptRow } from "./promptRow.ts"

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
>()("tollgate/audit/PromptLogMemory") {}

const make = ({ defaultDays }: { readonly defaultDays: number }) =>
  Effect.sync(() => {
    const rows = new Map<string, KeptPrompt>()
    const optedIn = new Map<string, number>()
    const log = PromptLog.of({
      transcript: (caller, arrival, request) => {
        if (caller.promptLogDays === undefined) return undefined
        const answer = new AnswerText()
        return {
          add: (frames) => {
            for (const frame of frames) answer.add(frame)
          },
          keep: Effect.sync(() => {
            const days = optedIn.get(caller.keyId)
            if (days === undefined || rows.has(arrival.requestId)) return
            rows.set(arrival.requestId, { ...promptRow(caller, arrival, request, answer), days })
          })
        }
      }
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
