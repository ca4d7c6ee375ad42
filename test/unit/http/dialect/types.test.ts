/** What becomes of each type of part, block, item and tool: the table of docs/protocol.md, against the decoders. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { membersOf, places } from "../../../../build/openapi/types.ts"
import type { Json, JsonObject } from "../../../../src/domain/Inference.ts"
import { isObject } from "../../../../src/domain/json.ts"
import * as messagesDialects from "../../../../src/http/dialect/messages/dialect.ts"
import * as native from "../../../../src/http/dialect/native/dialect.ts"
import * as openai from "../../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../../src/http/dialect/responses/dialect.ts"
import { bodiesWith } from "../../../support/requestFields.ts"
import { decoding } from "../decoding.ts"

const root = path.resolve(import.meta.dirname, "../../../..")

/** Letters only, a multiple of 4. */
const marker = "qzqz"
const chat = decoding(openai.openaiChat)
const response = decoding(responses)
const message = decoding(messagesDialects.messages)

const f = { type: "function", function: { name: "f" } }
const inChat = (more: JsonObject): Json => ({
  model: "m",
  messages: [{ role: "user", content: "a" }],
  ...more
})
const inInput = (more: JsonObject): Json => ({ model: "m", input: "a", ...more })
const inMessages = (more: JsonObject): Json => ({
  model: "m",
  max_tokens: 8,
  messages: [{ role: "user", content: "a" }],
  ...more
})
const saying = (...content: ReadonlyArray<Json>): JsonObject => ({ messages: [{ role: "user", content }] })

/** A request with an object where it may stand. */
const around: { readonly [place: string]: readonly [typeof chat, (object: Json) => Json] } = {
  "/v1/chat/completions parts of `content`": [chat, (part) => inChat(saying(part))],
  "/v1/chat/completions `tool_calls`": [
    chat,
    (call) => inChat({ messages: [{ role: "assistant", tool_calls: [call] }] })
  ],
  "/v1/chat/completions `tools`": [chat, (tool) => inChat({ tools: [tool] })],
  "/v1/chat/completions `tool_choice`": [
    chat,
    (choice) => inChat({ tools: [f, { type: "function", function: { name: marker } }], tool_choice: choice })
  ],
  "/v1/chat/completions `response_format`": [chat, (format) => inChat({ response_format: format })],
  "/v1/responses items of `input`": [
    response,
    (item) => inInput({ input: [{ role: "user", content: "a" }, item] })
  ],
  "/v1/responses parts of `content` and `output`": [
    response,
    (part) => inInput({ input: [{ role: "user", content: [part] }] })
  ],
  "/v1/responses `tools`": [response, (tool) => inInput({ tools: [tool] })],
  "/v1/responses tools of a `namespace`": [
    response,
    (tool) => inInput({ tools: [{ type: "namespace", name: "n", tools: [tool] }] })
  ],
  "/v1/responses `tool_choice`": [
    response,
    (choice) => inInput({ tools: [{ type: "function", name: marker }], tool_choice: choice })
  ],
  "/v1/responses `text.format`": [response, (format) => inInput({ text: { format } })],
  "/v1/messages blocks of `content`": [
    message,
    (block) => inMessages(saying({ type: "text", text: "a" }, block))
  ],
  "/v1/messages blocks of a `tool_result`": [
    message,
    (block) => inMessages(saying({ type: "tool_result", tool_use_id: "t", content: [block] }))
  ],
  "/v1/messages `source` of a `document`": [
    message,
    (source) => inMessages(saying({ type: "document", source }))
  ],
  "/v1/messages `source` of an `image`": [
    message,
    (source) => inMessages(saying({ type: "text", text: "a" }, { type: "image", source }))
  ],
  "/v1/messages `tools`": [message, (tool) => inMessages({ tools: [tool] })],
  "/v1/messages `tool_choice`": [
    message,
    (choice) => inMessages({ tools: [{ name: marker }], tool_choice: choice })
  ]
}

/** What a refusal never has: a type of the validator, or a value of JavaScript. */
const foreignWords = /readonly|undefined|Schema|[{}]|\| /

/** Types whose objects say nothing that a marker could stand in. */
const withoutText = new Set(["text", "json_object", "auto", "any", "none", "tool_removal"])

/** The types of a union in the declarations of `openai`: `{ …; type: 'a' | 'b' }` of each member. */
const published = (file: string, union: string): ReadonlyArray<string> => {
  const text = readFileSync(path.join(root, "node_modules/openai/resources", `${file}.d.ts`), "utf8")
  const members = new RegExp(`export type ${union} = ([^;]+);`).exec(text)?.[1]?.split(" | ") ?? []
  return members.flatMap((member) => {
    const name = member.split(".").at(-1) ?? ""
    const body = new RegExp(`\\n( *)(?:export )?interface ${name} \\{[^]*?\\n\\1\\}`).exec(
      member.includes(".") ? text.slice(text.indexOf(`namespace ${member.split(".")[0] ?? ""} {`)) : text
    )
    const type = /\n {4,8}type\??: ([^;{]+);/.exec(body?.[0] ?? "")?.[1] ?? ""
    return [...type.matchAll(/'([^']+)'/g)].map(([, one]) => one ?? "")
  })
}

/** What Anthropic's SDK has (`@anthropic-ai/sdk` 1.12.0, beta included). */
const anthropic = {
  "blocks of `content`":
    "text image document search_result thinking redacted_thinking tool_use tool_result server_tool_use web_search_tool_result web_fetch_tool_result advisor_tool_result code_execution_tool_result bash_code_execution_tool_result text_editor_code_execution_tool_result tool_search_tool_result mcp_tool_use mcp_tool_result container_upload compaction tool_addition tool_removal mcp_tool_listing fallback",
  "blocks of a `tool_result`": "text image search_result document tool_reference browser_state",
  "`source` of a `document`": "base64 text content url file",
  "`source` of an `image`": "base64 url file",
  "`tools`":
    "custom mcp_toolset bash_20250124 code_execution_20260521 browser_toolset_20260801 computer_20251124 memory_20250818 computer_toolset_20260801 text_editor_20250728 web_search_20260318 web_fetch_20260318 advisor_20260301 tool_search_tool_bm25_20251119 tool_search_tool_bm25 tool_search_tool_regex"
}

const vendors: ReadonlyArray<readonly [path: string, where: string, types: ReadonlyArray<string>]> = [
  ...Object.entries(anthropic).map(([where, types]) => ["/v1/messages", where, types.split(" ")] as const),
  [
    "/v1/chat/completions",
    "parts of `content`",
    published("chat/completions/completions", "ChatCompletionContentPart")
  ],
  [
    "/v1/chat/completions",
    "`tool_calls`",
    published("chat/completions/completions", "ChatCompletionMessageToolCall")
  ],
  ["/v1/chat/completions", "`tools`", published("chat/completions/completions", "ChatCompletionTool")],
  ["/v1/responses", "items of `input`", published("responses/responses", "ResponseInputItem")],
  [
    "/v1/responses",
    "parts of `content` and `output`",
    published("responses/responses", "ResponseInputContent")
  ],
  ["/v1/responses", "`tools`", published("responses/responses", "Tool")]
]

describe("types of parts, blocks, items and tools", () => {
  for (const [on, where, types] of vendors)
    it(`when a vendor publishes a type of ${where} of ${on}, then the table has it`, () => {
      const place = places.find((one) => one.path === on && one.where === where)
      const known = membersOf(place?.schema.ast ?? Schema.Never.ast).flatMap((member) => member.types)
      assert.isAtLeast(types.length, 2)
      const isKnown = (type: string) =>
        known.some(
          (one) => one === type || one.split(/,? (?:of a date)?/).includes(type.replace(/_\d{8}$/, ""))
        )
      assert.deepStrictEqual(
        types.filter((type) => !isKnown(type)),
        []
      )
    })

  for (const { path: on, schema, where } of places) {
    const [{ decoded, refused }, body] = around[`${on} ${where}`] ?? [chat, (object: Json) => object]

    for (const { ast, fate, types } of membersOf(schema.ast)) {
      it(`when ${types.join(", ")} stands in ${where} of ${on}, then it is ${fate?.is ?? "read"}`, () => {
        const filled = bodiesWith(Schema.make(ast), marker).map((one) => one.body)
        const [type = ""] = types
        // Of some types nothing is known but the type.
        const unread = { type: /^\w+,/.test(type) ? `${type.split(",")[0] ?? ""}_20990101` : type, x: marker }
        const objects = [...filled.filter(isObject), unread, { ...unread, output: marker }]
        if (fate?.is === "refused") assert.include(refused(body(unread)), `: ${fate.why}`)
        else if (fate?.is === "left out") {
          const request = decoded(body(unread))
          assert.strictEqual(refused(body(unread)), "accepted")
          if (request._tag === "Success" && where !== "`tool_choice`")
            assert.notInclude(JSON.stringify(request.success.body), marker)
        } else if (!withoutText.has(type)) {
          const reached = objects.some((object) => {
            const request = decoded(body(object))
            return request._tag === "Success" && JSON.stringify(request.success.body).includes(marker)
          })
          assert.isTrue(reached, JSON.stringify(objects.slice(0, 3)))
        }
      })
    }

    it(`when an unknown type stands in ${where} of ${on}, then the refusal lists the types that are read`, () => {
      const read = membersOf(schema.ast).flatMap(({ fate, types }) => (fate === undefined ? types : []))
      for (const unknown of [{ type: "new_thing", text: marker, name: marker }, { type: 5 }, 5, {}]) {
        const why = refused(body(unknown))
        assert.notMatch(why, foreignWords)
        if (isObject(unknown) && unknown["type"] === "new_thing")
          for (const type of read) if (why.length < 300) assert.include(why, `"${type}"`)
      }
    })
  }

  it("when a value is of a wrong type anywhere, then the refusal has words of JSON only", () => {
    const dialects = { ...messagesDialects, ...native, ...openai, responses }
    const odd: ReadonlyArray<Json> = [true, 1.5, "\u0000", [], {}, [{}], [[1]], { type: "x" }]
    for (const dialect of Object.values(dialects)) {
      const { refused } = decoding(dialect)
      for (const { body } of bodiesWith(dialect.accepts, marker).filter((_, i) => i % 199 === 0))
        if (isObject(body))
          for (const name of Object.keys(body))
            for (const other of odd) assert.notMatch(refused({ ...body, [name]: other }), foreignWords)
    }
  })
})
