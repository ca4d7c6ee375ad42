/** Taking down a request whose key has opted in: what both prompt logs do alike. */
import { Effect } from "effect"
import type { PromptLog } from "./PromptLog.ts"
import { AnswerText } from "./text.ts"
import { type PromptRow, promptRow } from "./row.ts"

/** `keep` takes the finished row, soon or at once; it never fails and never waits. */
export const makeTranscript =
  (keep: (row: PromptRow) => Effect.Effect<void>): PromptLog["Service"]["transcript"] =>
  (caller, arrival, request) => {
    if (caller.promptLogDays === undefined) return undefined
    const answer = new AnswerText()
    return {
      add: (frames) => {
        for (const frame of frames) answer.add(frame)
      },
      keep: Effect.suspend(() => keep(promptRow(caller, arrival, request, answer)))
    }
  }
