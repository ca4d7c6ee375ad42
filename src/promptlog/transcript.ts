/** Collects a request whose key has opted in. Both prompt logs use it. */
import { Effect } from "effect"
import type { PromptLog } from "./PromptLog.ts"
import { AnswerText } from "./text.ts"
import { type PromptRow, promptRow } from "./row.ts"

/** `keep` stores or queues the finished row. It never fails and never waits. */
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
