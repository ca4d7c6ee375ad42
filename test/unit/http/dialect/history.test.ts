/** What is said once, for all surfaces: the arguments of a call in the history, and the text of a document. */
import { assert, it } from "@effect/vitest"
import type { Json } from "../../../../src/domain/Inference.ts"
import { messages } from "../../../../src/http/dialect/messages/dialect.ts"
import { openaiChat } from "../../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../../src/http/dialect/responses/dialect.ts"
import { decoding } from "../decoding.ts"

const chat = decoding(openaiChat)
const response = decoding(responses)
const message = decoding(messages)

const calling: ReadonlyArray<readonly [typeof chat, (args: Json) => Json]> = [
  [
    chat,
    (args) => ({
      model: "m",
      messages: [
        {
          role: "assistant",
          content: "",
          tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: args } }]
        }
      ]
    })
  ],
  [
    response,
    (args) => ({ model: "m", input: [{ type: "function_call", call_id: "c", name: "f", arguments: args }] })
  ],
  [
    message,
    (args) => ({
      model: "m",
      max_tokens: 8,
      messages: [{ role: "assistant", content: [{ type: "tool_use", id: "c", name: "f", input: args }] }]
    })
  ]
]

it("when a model wrote broken arguments, then each later request has them as one argument", () => {
  const deep = `{"a":${"[".repeat(60_000)}${"]".repeat(60_000)}}`
  const cases: ReadonlyArray<readonly [Json, Json]> = [
    ['{"a": ', { input: '{"a":' }],
    ['{"city":"Bern"}', { city: "Bern" }],
    [{ city: "Bern" }, { city: "Bern" }],
    ["", {}],
    ["null", {}],
    [null, {}],
    ["[1]", { input: "[1]" }],
    ['"x"', { input: '"x"' }],
    ['{"a":1,"a":2}', { input: '{"a":1,"a":2}' }],
    [deep, { input: deep }]
  ]
  for (const [{ accepted }, asked] of calling)
    for (const [written, args] of cases)
      assert.deepStrictEqual(accepted(asked(written)).body["messages"], [
        {
          role: "assistant",
          content: "",
          tool_calls: [{ id: "c", function: { name: "f", arguments: args } }]
        }
      ])
})

it("when a history is of functions, or has a refusal, then the model reads the calls, their results and the refusal", () => {
  const messages: Json = [
    { role: "assistant", content: null, function_call: { name: "f", arguments: '{"city":"Bern"}' } },
    { role: "function", name: "f", content: "rain" },
    { role: "assistant", content: null, refusal: "No." }
  ]
  assert.deepStrictEqual(chat.accepted({ model: "m", messages }).body["messages"], [
    {
      role: "assistant",
      content: "",
      tool_calls: [{ function: { name: "f", arguments: { city: "Bern" } } }]
    },
    { role: "tool", content: "rain", tool_name: "f" },
    { role: "assistant", content: "No." }
  ])
})

it("when a response says whether a long prompt is cut, then the model server hears it", () => {
  for (const [truncation, truncate] of [
    ["auto", true],
    ["disabled", false],
    [null, undefined]
  ] as const)
    assert.strictEqual(response.accepted({ model: "m", input: "a", truncation }).body["truncate"], truncate)
})

const base64 = (text: string | Uint8Array) => Buffer.from(text).toString("base64")

const attaching: ReadonlyArray<readonly [typeof chat, (data: string) => Json, (more: Json) => Json]> = [
  [
    chat,
    (data) => ({ type: "file", file: { file_data: data, filename: "notes.txt" } }),
    (part) => ({ model: "m", messages: [{ role: "user", content: [part] }] })
  ],
  [
    response,
    (data) => ({ type: "input_file", file_data: data, filename: "notes.txt" }),
    (part) => ({ model: "m", input: [{ role: "user", content: [part] }] })
  ],
  [
    message,
    (data) => ({ type: "document", title: "notes.txt", source: { type: "base64", media_type: "x", data } }),
    (block) => ({ model: "m", max_tokens: 8, messages: [{ role: "user", content: [block] }] })
  ]
]

it("when a file is a text, then the model reads it with its title, whatever it is called", () => {
  const text = "The code is 4711.\n\tGrüße 🚀"
  for (const [{ accepted }, file, asked] of attaching)
    for (const type of ["", "data:text/plain;base64,", "data:application/json;charset=utf-8;base64,"])
      assert.deepStrictEqual(accepted(asked(file(type + base64(text)))).body["messages"], [
        { role: "user", content: `\nnotes.txt\n${text}\n` }
      ])
})

it("when a file is no text, or is not there, then the refusal says what to send", () => {
  const files = [
    base64("%PDF-1.7\n"),
    `data:application/pdf;base64,${base64("text")}`,
    base64(Uint8Array.of(0xff, 0xfe, 0)),
    base64("a\u0000b"),
    "https://example.com/a.txt",
    "not base64!"
  ]
  for (const [{ refused }, file, asked] of attaching)
    for (const data of files)
      assert.include(refused(asked(file(data))), ": no PDF, address or stored file is read", data)
  for (const [{ refused }, , asked] of attaching)
    for (const kept of [
      { type: "file", file: { file_id: "f" } },
      { type: "input_file", file_id: "f" },
      { type: "input_file", file_url: "http://169.254.169.254/" },
      { type: "document", source: { type: "url", url: "http://169.254.169.254/" } },
      { type: "document", source: { type: "file", file_id: "f" } }
    ]) {
      const why = refused(asked(kept))
      assert.isTrue(why.includes("send its text") || /type: expected "/.test(why), why)
    }
})
