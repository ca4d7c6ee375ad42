/**
 * The answer of `POST /v1/responses`: server-sent events, or the object of the last event (docs/protocol.md, "Responses
 * answers"). At most one item is open. The index of an item is its place in the output.
 */
import type { Frame, ToolCall } from "../../../domain/Frame.ts"
import type { AnsweredRequest, Json, JsonObject } from "../../../domain/Inference.ts"
import { isArray, isObject, jsonText, present } from "../../../domain/json.ts"
import { outcomes } from "../../../domain/Outcome.ts"
import type { ErrorResponse } from "../../errors/errorResponses.ts"
import type { Encoder } from "../Dialect.ts"
import { createdOf } from "../openai/answer.ts"
import { clientNames } from "./tools.ts"
import { addsTools } from "./input.ts"

/** A kind of item with one text, which comes in deltas. */
interface TextKind {
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
const reasoning: TextKind = {
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

const message: TextKind = {
  idPrefix: "msg",
  events: { text: "response.output_text", part: "response.content_part" },
  place: { content_index: 0 },
  more: { logprobs: [] },
  part: outputText,
  empty: (id) => messageItem(id, "in_progress", []),
  whole: (id, text, status) => messageItem(id, status, [outputText(text)])
}

/** How a call is written: as arguments, or as free text. Its events have the names of both. */
const functionCall = { prefix: "fc", type: "function_call", field: "arguments" }
const customCall = { prefix: "ctc", type: "custom_tool_call", field: "input" }

const inputOf = ({ arguments: args }: ToolCall): string =>
  typeof args["input"] === "string" ? args["input"] : jsonText(args)

const usageOf = (frame: Frame): JsonObject => {
  const [input, output] = [frame.promptEvalCount ?? 0, frame.evalCount ?? 0]
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: frame.promptEvalCachedCount ?? 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + output
  }
}

/** Unix seconds, for an answer without a frame. */
const now = (): number => Math.floor(Date.now() / 1000)

/** The codes by which Codex decides what its user reads and whether it asks again. */
const failureCodeOf = ({ status, type }: ErrorResponse): string => {
  // Here the gateway's own names are those of OpenAI.
  if (type === outcomes.contextExceeded.type) return type
  if (type === outcomes.budgetExceeded.type) return "insufficient_quota"
  if (status === outcomes.requestsLimited.status) return outcomes.requestsLimited.type
  return status < 500 ? "invalid_prompt" : "server_error"
}

/** Fields that are the same in every answer. */
export const constants = {
  background: false,
  max_tool_calls: null,
  previous_response_id: null,
  service_tier: "default",
  store: false,
  top_logprobs: 0
}

/** Fields of every answer that a request may say, and what they are when it does not. */
const usual: JsonObject = {
  frequency_penalty: 0,
  instructions: null,
  max_output_tokens: null,
  metadata: {},
  parallel_tool_calls: true,
  presence_penalty: 0,
  prompt_cache_key: null,
  reasoning: null,
  safety_identifier: null,
  temperature: 1,
  text: {},
  tool_choice: "auto",
  tools: [],
  top_p: 1,
  truncation: "disabled"
}

/** An object of the type with the keys that the standard demands. */
const filled = (value: Json, type: string, demanded: JsonObject): Json =>
  isObject(value) && value["type"] === type ? { ...demanded, ...present(value) } : value

const toolsIn = (holder: Json | undefined): ReadonlyArray<Json> =>
  isObject(holder) && isArray(holder["tools"])
    ? holder["tools"].map((tool) =>
        filled(tool, "function", { description: null, parameters: null, strict: null })
      )
    : []

/** The fields of every answer, as text: as the client sent them in `json`, with the bound that is in force. */
export const echoOf = (json: JsonObject, maxTokens: number | undefined): Buffer => {
  const { input, reasoning, text, tool_choice: choice } = json
  const adding = isArray(input) ? input.filter(addsTools) : []
  const format = (isObject(text) ? text["format"] : undefined) ?? { type: "text" }
  const fields = {
    ...constants,
    ...usual,
    ...present(json, Object.keys(usual)),
    max_output_tokens: maxTokens ?? null,
    reasoning: isObject(reasoning) ? { effort: null, summary: null, ...present(reasoning) } : null,
    text: {
      ...(isObject(text) ? text : {}),
      format: filled(format, "json_schema", { description: null, strict: false })
    },
    tool_choice: filled(choice ?? "auto", "allowed_tools", { mode: "auto" }),
    tools: [json, ...adding].flatMap(toolsIn)
  }
  return Buffer.from(jsonText(fields))
}

/** `fields`: the JSON text of the fields of an event, with the brace that ends them */
type Emit = (type: string, fields: string) => void

/** An item that gets text. */
interface Open {
  readonly kind: TextKind
  readonly id: string
  text: string
}

/** One answer. `emit` gets its events. */
class Answer {
  readonly #request: AnsweredRequest
  readonly #emitText: Emit
  #called: ReturnType<typeof clientNames> | undefined
  readonly #id: string
  readonly #output: Array<JsonObject> = []
  #createdAt: number | undefined
  #open: Open | undefined
  /** characters of its texts, which the last events repeat */
  length = 0

  constructor(request: AnsweredRequest, requestId: string, emit: Emit) {
    this.#request = request
    this.#id = requestId.replaceAll("-", "")
    this.#emitText = emit
  }

  #emit(type: string, data: JsonObject): void {
    this.#emitText(type, jsonText(data).slice(1))
  }

  /** The text of the answer as it is. */
  #response(status: string, more: JsonObject = {}): string {
    const own = jsonText({
      id: `resp_${this.#id}`,
      object: "response",
      created_at: this.#createdAt ?? null,
      completed_at: null,
      status,
      error: null,
      incomplete_details: null,
      model: this.#request.model,
      output: [...this.#output],
      usage: null,
      ...more
    })
    return `${own.slice(0, -1)},${this.#echo.slice(1)}`
  }

  get #echo(): string {
    return (this.#request.echoed ?? echoOf({}, undefined)).toString()
  }

  #emitResponse(type: string, response: string): void {
    this.#emitText(type, `"response":${response}}`)
  }

  /** Shows a client that the answer is on its way. It may be called again while the model is loaded. */
  begin(createdAt: number): void {
    const isNew = this.#createdAt === undefined
    this.#createdAt ??= createdAt
    const response = this.#response("in_progress")
    if (isNew) this.#emitResponse("response.created", response)
    this.#emitResponse("response.in_progress", response)
  }

  get #index(): number {
    return this.#output.length
  }

  #itemId(prefix: string): string {
    return `${prefix}_${this.#id}_${this.#index}`
  }

  /** Events of a text say where it is. */
  #emitAt({ id, kind }: Open, event: string, data: JsonObject): void {
    this.#emit(event, { item_id: id, output_index: this.#index, ...kind.place, ...data })
  }

  #start(kind: TextKind): Open {
    const open = { kind, id: this.#itemId(kind.idPrefix), text: "" }
    this.#emit("response.output_item.added", { output_index: this.#index, item: kind.empty(open.id) })
    this.#emitAt(open, `${kind.events.part}.added`, { part: kind.part("") })
    return open
  }

  #write(kind: TextKind, delta: string): void {
    if (this.#open?.kind !== kind) this.#close("completed")
    const open = (this.#open ??= this.#start(kind))
    open.text += delta
    this.length += delta.length
    if (delta !== "") this.#emitAt(open, `${kind.events.text}.delta`, { delta, ...kind.more })
  }

  #finish(item: JsonObject): void {
    this.#emit("response.output_item.done", { output_index: this.#index, item })
    this.#output.push(item)
  }

  #close(status: string): void {
    const open = this.#open
    if (open === undefined) return
    const { id, kind, text } = open
    this.#emitAt(open, `${kind.events.text}.done`, { text, ...kind.more })
    this.#emitAt(open, `${kind.events.part}.done`, { part: kind.part(text) })
    this.#finish(kind.whole(id, text, status))
    this.#open = undefined
  }

  #call(call: ToolCall): void {
    this.#close("completed")
    this.#called ??= clientNames(this.#echo)
    const { isCustom, name } = this.#called(call.name)
    const { field, prefix, type } = isCustom ? customCall : functionCall
    const events = `response.${type}_${field}`
    const text = isCustom ? inputOf(call) : jsonText(call.arguments)
    const id = this.#itemId(prefix)
    this.length += text.length
    const item = (status: string, written: string): JsonObject => ({
      id,
      type,
      status,
      call_id: callId,
      ...name,
      [field]: written
    })
    const callId = call.id ?? this.#itemId("call")
    const place = { item_id: id, output_index: this.#index }
    this.#emit("response.output_item.added", { output_index: this.#index, item: item("in_progress", "") })
    this.#emit(`${events}.delta`, { ...place, delta: text })
    this.#emit(`${events}.done`, { ...place, ...(isCustom ? {} : { name: name.name }), [field]: text })
    this.#finish(item("completed", text))
  }

  /** Adds a frame. Returns the whole answer after the last one. */
  add(frame: Frame): string | undefined {
    if (this.#createdAt === undefined) this.begin(createdOf(frame))
    if (frame.thinking !== undefined && frame.thinking !== "") this.#write(reasoning, frame.thinking)
    if (frame.text !== "") this.#write(message, frame.text)
    for (const call of frame.toolCalls ?? []) this.#call(call)
    return frame.done ? this.#end(frame) : undefined
  }

  /** An empty answer has an empty message, because agents ask again when there is none. */
  #end(final: Frame): string {
    if (this.#open === undefined && this.#output.length === 0) this.#write(message, "")
    const isCut = final.doneReason === "length"
    const status = isCut ? "incomplete" : "completed"
    this.#close(status)
    const response = this.#response(status, {
      usage: usageOf(final),
      ...(isCut
        ? { incomplete_details: { reason: "max_output_tokens" } }
        : { completed_at: createdOf(final) })
    })
    this.#emitResponse(`response.${status}`, response)
    return response
  }

  fail(error: ErrorResponse): void {
    if (this.#createdAt === undefined) this.begin(now())
    const failure = { code: failureCodeOf(error), message: error.message }
    this.#emitResponse("response.failed", this.#response("failed", { error: failure }))
  }
}

/** `requestId` is part of all ids, so that they are unique in a conversation. */
export const responsesEncoder = (request: AnsweredRequest, requestId: string): Encoder => {
  let sequence = 0
  let events = ""
  const answer = new Answer(request, requestId, (type, fields) => {
    events += `event: ${type}\ndata: {"type":"${type}","sequence_number":${sequence++},${fields}\n\n`
  })
  const written = (): string => {
    const text = events
    events = ""
    return text
  }
  return {
    frames: (chunk) => {
      for (const frame of chunk) answer.add(frame)
      return written()
    },
    // A character may take two bytes.
    kept: () => 2 * answer.length,
    waiting: () => {
      answer.begin(now())
      return written()
    },
    failure: (error) => {
      answer.fail(error)
      return written()
    },
    object: (run) => new Answer(request, requestId, () => {}).add(run) ?? ""
  }
}
