/** Bodies whose objects take many times the memory of their text, for each dialect: what an attacker sends. */
import * as fc from "fast-check"
import type { RequestDecoder } from "../../src/http/dialect/Dialect.ts"
import { messages } from "../../src/http/dialect/messages/dialect.ts"
import * as native from "../../src/http/dialect/native/dialect.ts"
import * as openai from "../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../src/http/dialect/responses/dialect.ts"

/** Values as text, from the number of the value. */
export const units: Readonly<Record<string, (n: number) => string>> = {
  "empty objects": () => "{}",
  "empty lists": () => "[]",
  "lists of one": () => "[1]",
  "one key": () => '{"a":1}',
  "distinct keys": (n) => `{"k${n % 4000}":1}`,
  "keys with escapes": () => String.raw`{"\n":1}`,
  "distinct keys with escapes": (n) => String.raw`{"\n${n % 4000}":1}`,
  "nested objects with distinct keys": (n) => `{"k${n % 2000}":{"j${n % 2000}":{}}}`,
  "small numbers": () => "1",
  fractions: () => "1.5",
  "numbers that are written out": () => "1e20",
  nulls: () => "null",
  "empty texts": () => '""',
  "texts of two bytes": () => '"é"',
  escapes: () => String.raw`"\u0001\u0001\u0001"`,
  prose: () => `"${"lorem ipsum ".repeat(200)}"`,
  "prose with an emoji": () => `"😀${"lorem ipsum ".repeat(200)}"`,
  mixed: () => '{"a":1,"b":2.5,"c":[1,2],"d":{"e":"f"}}'
}

/** A list of as many values as fit. */
const listOf = (unit: (n: number) => string, room: number): string => {
  const texts: Array<string> = []
  for (let [n, size] = [0, 0]; ; n += 1) {
    const text = unit(n)
    size += Buffer.byteLength(text) + 1
    if (size > room) return `[${texts.join(",")}]`
    texts.push(text)
  }
}

const user = '"messages":[{"role":"user","content":"a"}]'
const call = (args: string) =>
  `"messages":[{"role":"assistant","content":"a","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":${args}}}]}]`

interface Place {
  readonly decoder: RequestDecoder
  readonly path: string
  /** the body around a list */
  readonly around: (list: string) => string
  /** the part of a body that the list may take */
  readonly part?: number
}

/** Where a body takes any value. */
export const places: Readonly<Record<string, Place>> = {
  "arguments of a call": {
    decoder: native.nativeChat,
    path: "/api/chat",
    around: (list) => `{"model":"m",${call(`{"x":${list}}`)}}`
  },
  "an unknown field": {
    decoder: native.nativeChat,
    path: "/api/chat",
    around: (list) => `{"model":"m",${user},"x":${list}}`
  },
  "arguments as text": {
    decoder: openai.openaiChat,
    path: "/v1/chat/completions",
    around: (list) => `{"model":"m",${call(JSON.stringify(`{"x":${list}}`))}}`,
    part: 0.6
  },
  "parameters of a tool": {
    decoder: openai.openaiChat,
    path: "/v1/chat/completions",
    around: (list) =>
      `{"model":"m",${user},"tools":[{"type":"function","function":{"name":"f","parameters":{"x":${list}}}}]}`
  },
  "parameters that are repeated": {
    decoder: responses,
    path: "/v1/responses",
    around: (list) =>
      `{"model":"m","input":"a","tools":[{"type":"function","name":"f","parameters":{"x":${list}}}]}`
  },
  "input of a tool": {
    decoder: messages,
    path: "/v1/messages",
    around: (list) =>
      `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"x":${list}}}]}]}`
  }
}

/** A body of about `bytes` bytes, full of what `unit` makes. */
export const heavyBody = ({ around, part = 1 }: Place, unit: (n: number) => string, bytes: number): string =>
  around(listOf(unit, part * (bytes - around("[]").length)))

/** Any mixture of the values above, nested in any way. */
export const anyUnit = fc
  .letrec<{ value: string }>((tie) => ({
    value: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      fc.constantFrom(...Object.values(units)).map((unit) => unit(7)),
      fc.array(tie("value"), { maxLength: 4 }).map((items) => `[${items.join(",")}]`),
      fc
        .uniqueArray(fc.tuple(fc.stringMatching(/^[a-z]{1,6}$/), tie("value")), {
          maxLength: 4,
          selector: ([key]) => key
        })
        .map((entries) => `{${entries.map(([key, value]) => `"${key}":${value}`).join(",")}}`)
    )
  }))
  .value.map((text) => (n: number) => text.replaceAll(/"([a-z]{1,6})":/g, `"$1${n % 200}":`))
