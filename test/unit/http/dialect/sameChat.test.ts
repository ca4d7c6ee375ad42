/** One chat, written in every dialect that has chats: the model server gets the same, and the client reads the same. */
import { assert, it } from "@effect/vitest"
import { Schema } from "effect"
import * as fc from "fast-check"
import * as Answers from "../../../../build/openapi/answers.ts"
import type { Frame } from "../../../../src/domain/Frame.ts"
import type { Json, JsonObject } from "../../../../src/domain/Inference.ts"
import { jsonText, readJson } from "../../../../src/domain/json.ts"
import type { Dialect } from "../../../../src/http/dialect/Dialect.ts"
import { messages } from "../../../../src/http/dialect/messages/dialect.ts"
import { nativeChat } from "../../../../src/http/dialect/native/dialect.ts"
import { openaiChat } from "../../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../../src/http/dialect/responses/dialect.ts"
import { decoding } from "../decoding.ts"

interface Call {
  readonly id: string
  readonly name: string
  readonly args: JsonObject
}
/** What somebody says, and after it a turn of the assistant with the results of its calls. */
interface Round {
  readonly role: "system" | "user"
  readonly text: string
  readonly reply?: {
    readonly text: string
    readonly thinking?: string
    readonly calls: ReadonlyArray<Call>
    readonly result: string
  }
}
interface Chat {
  readonly rounds: ReadonlyArray<Round>
  readonly tools: ReadonlyArray<{ readonly name: string; readonly description: string }>
  /** `/v1/messages` demands it */
  readonly maxTokens: number
  readonly temperature?: number
}

const text = fc.string({ unit: "grapheme", maxLength: 20 })
const words = fc.string({ minLength: 1, maxLength: 20 })
const name = fc.constantFrom("weather", "shell", "edit_file")
const call = fc.record({
  id: fc.uuid().map((id) => `call_${id}`),
  name,
  args: fc.dictionary(fc.stringMatching(/^[a-z]{1,4}$/), text, { maxKeys: 3 })
})
const reply = fc.record(
  {
    text: words,
    thinking: words,
    calls: fc.uniqueArray(call, { maxLength: 2, selector: ({ id }) => id }),
    result: text
  },
  { requiredKeys: ["text", "calls", "result"] }
)
const round = fc.record(
  { role: fc.constantFrom("system" as const, "user" as const), text: words, reply },
  { requiredKeys: ["role", "text"] }
)
const chat: fc.Arbitrary<Chat> = fc.record(
  {
    rounds: fc.array(round, { minLength: 1, maxLength: 4 }),
    tools: fc.uniqueArray(fc.record({ name, description: text }), {
      maxLength: 2,
      selector: (tool) => tool.name
    }),
    maxTokens: fc.integer({ min: 1, max: 4096 }),
    temperature: fc.constantFrom(0.1, 0.5, 1)
  },
  { requiredKeys: ["rounds", "tools", "maxTokens"] }
)

const parameters = { type: "object", properties: { a: { type: "string" } } }

/** The field, unless there is nothing to say in it. */
const field = (name: string, value: Json | undefined) =>
  value === undefined || (Array.isArray(value) && value.length === 0) ? {} : { [name]: value }

/** What somebody says in each round, and what `answers` makes of the assistant's turn. */
const written = (
  { rounds }: Chat,
  answers: (reply: NonNullable<Round["reply"]>) => ReadonlyArray<Json>,
  says = (text: string): Json => text
): ReadonlyArray<Json> =>
  rounds.flatMap(({ reply: said, role, text: content }) => [
    { role, content: says(content) },
    ...(said === undefined ? [] : answers(said))
  ])

const functions = ({ tools }: Chat) =>
  field(
    "tools",
    tools.map((tool) => ({ type: "function", function: { ...tool, parameters } }))
  )

const inNative = (asked: Chat): Json => ({
  model: "m",
  messages: written(asked, ({ calls, result, text: content, thinking }) => [
    {
      role: "assistant",
      content,
      ...field("thinking", thinking),
      ...field(
        "tool_calls",
        calls.map(({ args, id, name: called }) => ({ id, function: { name: called, arguments: args } }))
      )
    },
    ...calls.map((call) => ({
      role: "tool",
      content: result,
      tool_call_id: call.id,
      tool_name: call.name
    }))
  ]),
  ...functions(asked),
  options: { num_predict: asked.maxTokens, ...field("temperature", asked.temperature) }
})

const inOpenai = (asked: Chat): Json => ({
  model: "m",
  messages: written(asked, ({ calls, result, text: content, thinking }) => [
    {
      role: "assistant",
      content,
      ...field("reasoning", thinking),
      tool_calls: calls.map(({ args, id, name: called }) => ({
        id,
        type: "function",
        function: { name: called, arguments: JSON.stringify(args) }
      }))
    },
    ...calls.map(({ id }) => ({ role: "tool", content: result, tool_call_id: id }))
  ]),
  ...functions(asked),
  max_completion_tokens: asked.maxTokens,
  ...field("temperature", asked.temperature)
})

const inResponses = (asked: Chat): Json => ({
  model: "m",
  input: written(
    asked,
    ({ calls, result, text: said, thinking }) => [
      ...(thinking === undefined
        ? []
        : [{ type: "reasoning", summary: [{ type: "summary_text", text: thinking }] }]),
      { type: "message", role: "assistant", content: [{ type: "output_text", text: said }] },
      ...calls.map(({ args, id, name: called }) => ({
        type: "function_call",
        call_id: id,
        name: called,
        arguments: JSON.stringify(args)
      })),
      ...calls.map(({ id }) => ({ type: "function_call_output", call_id: id, output: result }))
    ],
    (said) => [{ type: "input_text", text: said }]
  ),
  tools: asked.tools.map((tool) => ({ type: "function", ...tool, parameters })),
  max_output_tokens: asked.maxTokens,
  ...field("temperature", asked.temperature)
})

const inMessages = (asked: Chat): Json => ({
  model: "m",
  messages: written(asked, ({ calls, result, text: said, thinking }) => [
    {
      role: "assistant",
      content: [
        ...(thinking === undefined ? [] : [{ type: "thinking", thinking, signature: "" }]),
        { type: "text", text: said },
        ...calls.map(({ args, id, name: called }) => ({ type: "tool_use", id, name: called, input: args }))
      ]
    },
    {
      role: "user",
      content: calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: result }))
    }
  ]),
  tools: asked.tools.map((tool) => ({ ...tool, input_schema: parameters })),
  max_tokens: asked.maxTokens,
  ...field("temperature", asked.temperature)
})

/** What a client reads of an answer, wherever its dialect has it. */
interface Read {
  readonly text: string
  readonly thinking: string
  readonly calls: ReadonlyArray<readonly [name: string, args: string]>
  readonly tokens: ReadonlyArray<number | undefined>
}

const readNative = (answer: typeof Answers.NativeChatFrame.Type): Read => ({
  text: answer.message.content,
  thinking: answer.message.thinking ?? "",
  calls: (answer.message.tool_calls ?? []).map(({ function: called }) => [
    called.name,
    jsonText(called.arguments)
  ]),
  tokens: [answer.prompt_eval_count, answer.eval_count]
})

const readOpenai = ({ choices: [choice], usage }: typeof Answers.ChatCompletion.Type): Read => ({
  text: choice?.message.content ?? "",
  thinking: choice?.message.reasoning ?? "",
  calls: (choice?.message.tool_calls ?? []).map(({ function: called }) => [called.name, called.arguments]),
  tokens: [usage.prompt_tokens, usage.completion_tokens]
})

const readResponses = ({ output, usage }: typeof Answers.Response.Type): Read => ({
  text: output
    .map((item) => (item.type === "message" ? item.content.map((part) => part.text).join("") : ""))
    .join(""),
  thinking: output
    .map((item) => (item.type === "reasoning" ? item.summary.map((part) => part.text).join("") : ""))
    .join(""),
  calls: output.flatMap((item) =>
    item.type === "function_call" ? [[item.name, item.arguments] as const] : []
  ),
  tokens: [usage?.input_tokens, usage?.output_tokens]
})

const readMessages = ({ content, usage }: typeof Answers.MessagesMessage.Type): Read => ({
  text: content.map((block) => (block.type === "text" ? block.text : "")).join(""),
  thinking: content.map((block) => (block.type === "thinking" ? block.thinking : "")).join(""),
  calls: content.flatMap((block) =>
    block.type === "tool_use" ? [[block.name, jsonText(block.input)] as const] : []
  ),
  tokens: [usage.input_tokens, usage.output_tokens]
})

/** How a dialect writes a chat, and how its client reads the answer. */
const reader = <A, I>(answer: Schema.Codec<A, I>, read: (answer: A) => Read) => {
  const decode = Schema.decodeUnknownSync(answer)
  return (object: Json): Read => read(decode(object))
}

const dialects: ReadonlyArray<readonly [Dialect, (asked: Chat) => Json, (object: Json) => Read]> = [
  [nativeChat, inNative, reader(Answers.NativeChatFrame, readNative)],
  [openaiChat, inOpenai, reader(Answers.ChatCompletion, readOpenai)],
  [responses, inResponses, reader(Answers.Response, readResponses)],
  [messages, inMessages, reader(Answers.MessagesMessage, readMessages)]
]

const answer: fc.Arbitrary<Frame> = fc
  .record(
    {
      text,
      thinking: words,
      toolCalls: fc.array(
        call.map(({ args, ...called }) => ({ ...called, arguments: args })),
        { minLength: 1, maxLength: 2 }
      ),
      promptEvalCount: fc.nat(10_000),
      evalCount: fc.nat(10_000)
    },
    { requiredKeys: ["text", "promptEvalCount", "evalCount"] }
  )
  .map((more) => ({ createdAt: "2026-11-21T10:00:00Z", done: true, doneReason: "stop", ...more }))

const facts = { requestId: "r", seal: () => undefined }

it("when a chat is written in each dialect, then the model server gets one request, and the client reads one answer", () => {
  fc.assert(
    fc.property(chat, answer, (asked, frame) => {
      const runs = dialects.map(([dialect, write, read]) => {
        const request = decoding(dialect).accepted(write(asked))
        const { body, maxTokens, options, promptBytes, promptEstimate } = request
        return {
          sent: { body, maxTokens, options, promptBytes, promptEstimate },
          read: read(readJson(dialect.encoder(request, facts).object(frame)))
        }
      })
      for (const run of runs) assert.deepStrictEqual(run, runs[0])
      assert.strictEqual(runs[0]?.read.text, frame.text)
    }),
    { numRuns: 1000 }
  )
})
