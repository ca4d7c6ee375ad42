/**
 * The CPU of reading and decoding a body of 255 KiB, for every shape that costs a client few bytes: `node bench/bodies.ts`, on a
 * quiet machine, some minutes. Each row has the least ms of CPU of six, of that the parse, and how many times a plain body it is:
 * `/api/chat` with as many messages of one letter as there is room for. Rows above `MIN` times (default 1.5) are printed.
 */
import { Result } from "effect"
import type { Decode } from "../src/http/dialect/Dialect.ts"
import { withPromptSize } from "../src/http/dialect/promptEstimate.ts"
import { parseBody } from "../src/http/dialect/strictJson.ts"
import { type Route, routes } from "../src/http/routes.ts"

const size = 255 * 1024
const bounds = { numPredictCap: 65_536, lowersOutput: false, numCtxCap: undefined, toolsMax: 128 }

/** A body around a list, or around an object. */
type Around = (inner: string) => string

const listOf = (entry: string, around: Around): string => {
  const room = size - around("").length
  return around(Array.from({ length: Math.floor(room / (entry.length + 1)) }, () => entry).join(","))
}

/** An object with another key for each value. */
const objectOf = (value: string, around: Around): string => {
  const fields: Array<string> = []
  for (let room = size - around("").length, i = 0; room > 0; i += 1) {
    const field = `"${i.toString(36)}":${value}`
    fields.push(field)
    room -= field.length + 1
  }
  return around(`{${fields.slice(0, -1).join(",")}}`)
}

const pixel =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

/** Entries of lists, of every kind that some surface knows, and of none. */
const entries = [
  "null",
  "0",
  "true",
  '""',
  '"a"',
  "{}",
  "[]",
  "[[[[[]]]]]",
  `"${pixel}"`,
  '{"type":"x"}',
  '{"type":""}',
  '{"type":null}',
  '{"name":"f"}',
  '{"a":1,"b":2,"c":3,"d":4}',
  ...["user", "assistant", "system", "tool", "x"].map((role) => `{"role":"${role}","content":"a"}`),
  '{"role":"assistant"}',
  '{"role":"user","content":[]}',
  '{"role":"user","content":[{"type":"text","text":"a"}]}',
  '{"role":"user","content":[{"type":"input_text","text":"a"}]}',
  '{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}',
  '{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]}',
  ...["text", "input_text"].map((type) => `{"type":"${type}","text":""}`),
  ...["text", "function", "message", "reasoning", "item_reference"].map((type) => `{"type":"${type}"}`),
  ...["function", "custom"].map((type) => `{"type":"${type}","name":"f"}`),
  '{"type":"refusal","refusal":""}',
  '{"type":"message","role":"user","content":"a"}',
  '{"type":"function","function":{"name":"f"}}',
  '{"type":"namespace","name":"n","tools":[]}',
  '{"type":"namespace","name":"n","tools":[{"type":"x"},{"type":"y"}]}',
  '{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}',
  '{"type":"function_call_output","call_id":"a","output":""}',
  '{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":""}]}',
  '{"type":"custom_tool_call","call_id":"a","name":"f","input":""}',
  '{"type":"reasoning","summary":[{"type":"summary_text","text":""}]}',
  '{"type":"thinking","thinking":""}',
  '{"type":"tool_use","id":"a","name":"f","input":{}}',
  '{"type":"server_tool_use","id":"a","name":"f"}',
  '{"type":"tool_result","tool_use_id":"a"}',
  '{"type":"tool_result","tool_use_id":"a","content":[{"type":"x"},{"type":"text","text":""}]}',
  '{"type":"web_search_tool_result","tool_use_id":"a","content":[{},{}]}',
  `{"type":"image","source":{"type":"base64","data":"${pixel}"}}`,
  `{"type":"image_url","image_url":{"url":"data:image/png;base64,${pixel}"}}`,
  `{"type":"input_image","image_url":"data:image/png;base64,${pixel}"}`
]

/** Values under different keys. */
const values = ["1", "{}", '{"type":"string"}', '""']

const said = '"messages":[{"role":"user","content":"a"}]'
/** `X` is where the list or the object stands, `M` the fields that a chat needs. */
const places: Readonly<Record<string, ReadonlyArray<string>>> = {
  "/api/chat": [
    '"messages":[X]',
    'M,"tools":[X]',
    '"messages":[{"role":"user","content":"a","images":[X]}]',
    '"messages":[{"role":"assistant","tool_calls":[X]}]',
    '"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":X}}]}]',
    'M,"tools":[{"type":"function","function":{"name":"f","parameters":X}}]',
    'M,"options":{"stop":[X]}',
    'M,"options":X',
    'M,"format":X',
    'M,"format":{"type":"object","properties":X}',
    'M,"format":{"enum":[X]}',
    'M,"other":[X]'
  ],
  "/api/generate": ['"prompt":"a","images":[X]', '"prompt":"a","context":[X]'],
  "/api/embed": ['"input":[X]'],
  "/v1/chat/completions": [
    '"messages":[X]',
    '"messages":[{"role":"user","content":[X]}]',
    '"messages":[{"role":"assistant","tool_calls":[X]}]',
    'M,"tools":[X]',
    'M,"stop":[X]',
    'M,"response_format":{"type":"json_schema","json_schema":{"schema":X}}'
  ],
  "/v1/completions": ['"prompt":[X]'],
  "/v1/embeddings": ['"input":[X]'],
  "/v1/responses": [
    '"input":[X]',
    '"input":[{"role":"user","content":[X]}]',
    '"input":[{"type":"function_call_output","call_id":"a","output":[X]}]',
    '"input":[{"type":"reasoning","summary":[X]}]',
    '"input":"a","tools":[X]',
    '"input":"a","tools":[{"type":"namespace","name":"n","tools":[X]}]',
    '"input":"a","tool_choice":{"type":"allowed_tools","tools":[X]}',
    '"input":"a","metadata":X'
  ],
  "/v1/messages": [
    '"messages":[X]',
    '"messages":[{"role":"user","content":[X]}]',
    '"messages":[{"role":"assistant","content":[X]}]',
    '"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[X]}]}]',
    '"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":X}]}]',
    'M,"system":[X]',
    'M,"tools":[X]'
  ]
}

interface Shape {
  readonly name: string
  readonly decode: Decode
  readonly body: string
}

const decodeOf = (path: string): Decode => {
  const route = routes.find((one: Route) => one.path === path)
  if (route === undefined || !("dialect" in route)) throw new Error(`no dialect at ${path}`)
  return route.dialect.decode
}

const shapes: ReadonlyArray<Shape> = Object.entries(places).flatMap(([path, all]) =>
  all.flatMap((place) => {
    const around: Around = (inner) =>
      `{"model":"m","max_tokens":9,${place.replace("M", said).replace("X", inner)}}`
    const isList = place.includes("[X]")
    return (isList ? entries : values).map((unit) => ({
      name: `${path} ${place.replace("M,", "")} of ${isList ? "" : "keys with "}${unit.slice(0, 60)}`,
      decode: decodeOf(path),
      body: isList ? listOf(unit, around) : objectOf(unit, around)
    }))
  })
)

const plain: Shape = {
  name: "plain",
  decode: decodeOf("/api/chat"),
  body: listOf('{"role":"user","content":"a"}', (inner) => `{"model":"m","messages":[${inner}]}`)
}

const cpuMs = (work: () => void): number => {
  const before = process.cpuUsage()
  work()
  const { system, user } = process.cpuUsage(before)
  return (user + system) / 1000
}

/** The least of some runs: a busy machine adds CPU, and never takes any away. */
const leastMs = (work: () => void): number => Math.min(...Array.from({ length: 6 }, () => cpuMs(work)))

const measured = ({ body, decode }: Shape) => {
  const bytes = Buffer.from(body)
  let outcome = ""
  const whole = leastMs(() => {
    const parsed = parseBody(bytes)
    const decoded = Result.isSuccess(parsed) ? decode(parsed.success, bounds) : undefined
    if (decoded !== undefined && Result.isSuccess(decoded)) withPromptSize(decoded.success)
    outcome = decoded === undefined ? "400" : Result.isSuccess(decoded) ? "ok" : decoded.failure.detail
  })
  return { whole, parse: leastMs(() => void parseBody(bytes)), outcome }
}

// Compiled code is measured.
for (let n = 0; n < 20; n += 1) measured(plain)
const unit = measured(plain).whole
const rows = shapes
  .map((shape) => ({ ...measured(shape), name: shape.name }))
  .toSorted((one, other) => other.whole - one.whole)
  .filter(({ whole }) => whole >= unit * Number(process.env["MIN"] ?? 1.5))
process.stdout.write(`${shapes.length} shapes; a plain body: ${unit.toFixed(1)} ms\n`)
for (const { name, outcome, parse, whole } of rows)
  process.stdout.write(
    `${whole.toFixed(1).padStart(6)} ms  parse ${parse.toFixed(1).padStart(5)}  ${(whole / unit).toFixed(1)}×  ${name}  ${outcome.slice(0, 60)}\n`
  )
