/** Turns a finished transcript into a row. */
import type { Caller } from "../domain/Caller.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import { type AnswerText, promptText } from "./text.ts"
import type { Arrival } from "../domain/AuditRecord.ts"
import { clientText } from "../domain/clientText.ts"

export interface PromptRow {
  readonly request_id: string
  readonly key_id: string
  readonly created_at: string
  readonly endpoint: string
  readonly prompt: string
  readonly answer: string
  readonly truncated: boolean
}

export const promptRow = (
  caller: Caller,
  arrival: Arrival,
  request: InferenceRequest,
  answer: AnswerText
): PromptRow => {
  const [asked, answered] = [promptText(request.body), answer.cut]
  return {
    request_id: arrival.requestId,
    key_id: caller.keyId,
    created_at: new Date(arrival.arrivedAt).toISOString(),
    endpoint: clientText(arrival.endpoint, 256),
    prompt: asked.text,
    answer: answered.text,
    truncated: asked.truncated || answered.truncated
  }
}
