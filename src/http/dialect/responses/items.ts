/** The items of an answer of `POST /v1/responses` (docs/protocol.md, "Responses answers"). */
import type { ToolCall } from "../../../domain/Frame.ts"
import type { JsonObject } from "../../../domain/Inference.ts"
import type { ClientName } from "./tools.ts"

/** A kind of item with one text, which comes in deltas. */
export interface TextKind {
  readonly idPrefix: string
  /** the events of the text, and of the part of the item that has it */
  readonly events: { readonly text: string; readonly part: string }
  /** where the text is in its item, as its events say it */
  readonly place: JsonObject
  /** fields that the events of the text have besides */
  readonly more: JsonObject
  readonly part: (text: string) => JsonObject
  /** the item before its first part */
  readonly empty: (id: string) => JsonObject
  readonly whole: (id: string, text: string, status: string) => JsonObject
}

const summary = (text: string): JsonObject => ({ type: "summary_text", text })

/** Clients send `encrypted_content` back and may leave out the summary, so both have the whole text. */
export const reasoning: TextKind = {
  idPrefix: "rs",
  events: { text: "response.reasoning_summary_text", part: "response.reasoning_summary_part" },
  place: { summary_index: 0 },
  more: {},
  part: summary,
  empty: (id) => ({ id, type: "reasoning", summary: [] }),
  whole: (id, text) => ({ id, type: "reasoning", summary: [summary(text)], encrypted_content: text })
}

const outputText = (text: string): JsonObject => ({
  type: "output_text",
  text,
  annotations: [],
  logprobs: []
})

const messageItem = (id: string, status: string, content: ReadonlyArray<JsonObject>): JsonObject => ({
  id,
  type: "message",
  status,
  role: "assistant",
  content
})

export const message: TextKind = {
  idPrefix: "msg",
  events: { text: "response.output_text", part: "response.content_part" },
  place: { content_index: 0 },
  more: { logprobs: [] },
  part: outputText,
  empty: (id) => messageItem(id, "in_progress", []),
  whole: (id, text, status) => messageItem(id, status, [outputText(text)])
}

export const callItem = (
  id: string,
  status: "in_progress" | "completed",
  call: { readonly id: string; readonly name: ClientName; readonly text: string }
): JsonObject => ({
  id,
  type: "function_call",
  status,
  call_id: call.id,
  ...call.name,
  arguments: call.text
})

export const argumentsText = ({ arguments: args }: ToolCall): string => JSON.stringify(args)
