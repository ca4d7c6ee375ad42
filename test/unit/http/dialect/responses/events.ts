/** Reads the events of an answer, and refuses those that the grammar of Responses does not allow. */
import { assert } from "@effect/vitest"
import { Schema } from "effect"
import * as Answers from "../../../../../build/openapi/answers.ts"

export type Response = typeof Answers.Response.Type
export type Item = Response["output"][number]
type Event = typeof Answers.ResponseEvent.Type

const decodeEvent = Schema.decodeUnknownSync(Schema.fromJsonString(Answers.ResponseEvent), {
  onExcessProperty: "error"
})

/** The events of a stream. The name of each is also the `type` of its data. */
export const eventsOf = (stream: string): ReadonlyArray<Event> => {
  assert.isTrue(stream === "" || stream.endsWith("\n\n"))
  return stream
    .split("\n\n")
    .slice(0, -1)
    .map((text) => {
      const [name = "", data = "", ...others] = text.split("\n")
      assert.deepStrictEqual(others, [])
      const event = decodeEvent(data.slice("data: ".length))
      assert.strictEqual(name, `event: ${event.type}`)
      return event
    })
}

const begins = ["response.created", "response.in_progress"]
const ends = ["response.completed", "response.incomplete", "response.failed"]

const textKinds = [
  { type: "reasoning", part: "response.reasoning_summary_part", text: "response.reasoning_summary_text" },
  { type: "message", part: "response.content_part", text: "response.output_text" }
] as const

/** The texts of an item, wherever the item has them. */
export const textIn = (item: Item | undefined): string =>
  (item?.type === "reasoning" ? item.summary : item?.type === "message" ? item.content : [])
    .map(({ text }) => text)
    .join("")

/** The events of one item from `added` to `done`. */
const checkItem = (item: Item, inner: ReadonlyArray<Event>): void => {
  for (const event of inner) assert.strictEqual(event.item_id, item.id)
  const [types, deltas] = [inner.map(({ type }) => type), inner.flatMap(({ delta }) => delta ?? []).join("")]
  if (item.type === "function_call" || item.type === "custom_tool_call") {
    const [call, text] =
      item.type === "function_call"
        ? ["response.function_call_arguments", item.arguments]
        : ["response.custom_tool_call_input", item.input]
    assert.deepStrictEqual(types, [`${call}.delta`, `${call}.done`])
    assert.deepStrictEqual([deltas, inner[1]?.arguments ?? inner[1]?.input], [text, text])
    return
  }
  const kind = textKinds.find(({ type }) => type === item.type)
  assert.isDefined(kind)
  if (kind === undefined) return
  const middle = types.slice(1, -2)
  assert.deepStrictEqual(types, [
    `${kind.part}.added`,
    ...middle.map(() => `${kind.text}.delta`),
    `${kind.text}.done`,
    `${kind.part}.done`
  ])
  assert.deepStrictEqual([deltas, inner.at(-2)?.text], [textIn(item), textIn(item)])
}

/**
 * Checks a whole stream: it begins once, has one item open at a time, numbers events and items one after the other, its deltas
 * add up to what is done, and it ends once. Returns the last event's response.
 */
export const checkStream = (stream: string): Response => {
  const events = eventsOf(stream)
  assert.deepStrictEqual(
    events.map((event) => event.sequence_number),
    events.map((_, i) => i)
  )
  const first = events.findIndex(({ type }) => type !== "response.created" && type !== "response.in_progress")
  assert.deepStrictEqual(
    events.slice(0, 2).map(({ type }) => type),
    begins
  )
  assert.isTrue(events.slice(2, first).every(({ type }) => type === "response.in_progress"))
  const last = events.at(-1)
  assert.include(ends, last?.type)

  const done: Array<Item> = []
  let open: { readonly item: Item; readonly inner: Array<Event> } | undefined
  for (const event of events.slice(first, -1)) {
    assert.strictEqual(event.output_index, done.length, "indices rise by one")
    if (event.type === "response.output_item.added") {
      assert.isUndefined(open, "one item is open at a time")
      if (event.item !== undefined) open = { item: event.item, inner: [] }
    } else if (event.type === "response.output_item.done") {
      const { item } = event
      if (item === undefined) throw new Error("no item")
      assert.deepStrictEqual([open?.item.id, open?.item.type], [item.id, item.type])
      checkItem(item, open?.inner ?? [])
      done.push(item)
      open = undefined
    } else open?.inner.push(event)
  }
  const response = last?.response
  if (response === undefined) throw new Error("no response at the end")
  if (response.status !== "failed") assert.isUndefined(open)
  assert.strictEqual(last?.type, `response.${response.status}`)
  assert.deepStrictEqual(response.output, done)
  assert.strictEqual(new Set(done.map(({ id }) => id)).size, done.length)
  return response
}
