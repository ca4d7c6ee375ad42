/**
 * Envoy's red line: what the worst 256 KiB cost in CPU, from bytes to the decision, on each surface.
 * `node bench/hostile.ts`: milliseconds, the slowest of five; fails above 100.
 */
import { Result } from "effect"
import { parseBody } from "../src/http/dialect/strictJson.ts"
import type { Dialect } from "../src/http/dialect/Dialect.ts"
import { nativeChat, nativeGenerate } from "../src/http/dialect/native/dialect.ts"
import { openaiChat, openaiCompletions } from "../src/http/dialect/openai/dialect.ts"

const most = 262_144
const redLineMs = 100

/** `piece(i)` again and again between `open` and `close`, as often as fits. */
const filled = (open: string, close: string, piece: (i: number) => string, between = ","): string => {
  const pieces: Array<string> = []
  let size = open.length + close.length
  for (let i = 0; ; i += 1) {
    const next = piece(i)
    size += next.length + between.length
    if (size > most) return open + pieces.join(between) + close
    pieces.push(next)
  }
}

const chat = '{"model":"m",'
const bodies: ReadonlyArray<readonly [string, string]> = [
  ["brackets all the way", "[".repeat(most)],
  ["objects all the way", '{"a":'.repeat(most / 5)],
  ["63 levels, again and again", filled(`${chat}"x":[`, "]}", () => "[".repeat(60) + "]".repeat(60))],
  ["many keys", filled(`${chat}`, "}", (i) => `"k${i}":1`)],
  ["integer-like keys", filled(`${chat}`, "}", (i) => `"${i * 7919}":1`)],
  ["keys that look alike", filled(`${chat}`, "}", (i) => `"model${"\\u200b".repeat(i % 50)}${i}":1`)],
  ["escaped keys", filled(`${chat}`, "}", (i) => `"\\u006d${i}":1`)],
  ["one long key", `${chat}"${"k".repeat(most - 30)}":1}`],
  ["one long number", `${chat}"n":${"9".repeat(most - 30)}}`],
  ["long numbers", filled(`${chat}"n":[`, "]}", () => "1234567890.123456789e-300")],
  ["backslashes", `${chat}"s":"${"\\\\".repeat((most - 30) / 2)}"}`],
  ["unicode escapes", `${chat}"s":"${"\\ud83d".repeat((most - 40) / 6)}"}`],
  ["white space", `${chat}${" ".repeat(most - 30)}"s":1}`],
  ["spaces behind keys", filled(`${chat}`, "}", (i) => `"${i}"${" ".repeat(100)}:1`)],
  ["an unclosed string", `${chat}"${"a".repeat(most - 30)}`],
  ["empty messages", filled(`${chat}"messages":[`, "]}", () => "{}")],
  ["short messages", filled(`${chat}"messages":[`, "]}", () => '{"role":"user","content":""}')],
  [
    "tool answers to nothing",
    filled(`${chat}"messages":[`, "]}", () => '{"role":"tool","content":"","tool_call_id":"x"}')
  ],
  [
    "tool calls and answers to none of them",
    filled(
      `${chat}"messages":[{"role":"assistant","tool_calls":[`,
      `]}${',{"role":"tool","content":"","tool_call_id":"x"}'.repeat(2000)}]}`,
      () => '{"id":"a","function":{"name":"f"}}'
    ).slice(0, most * 2)
  ],
  [
    "tools",
    filled(
      `${chat}"messages":[{"role":"user","content":"x"}],"tools":[`,
      "]}",
      () => '{"type":"function","function":{"name":"f"}}'
    )
  ],
  [
    "content parts",
    filled(`${chat}"messages":[{"role":"user","content":[`, "]}]}", () => '{"type":"text","text":""}')
  ],
  [
    "wrong content parts",
    filled(`${chat}"messages":[{"role":"user","content":[`, "]}]}", () => '{"type":"x"}')
  ],
  ["context", filled(`${chat}"prompt":"","context":[`, "]}", () => "1")],
  ["stops", filled(`${chat}"stop":[`, '],"messages":[]}', () => '""')],
  ["an image", `${chat}"prompt":"","images":["${"A".repeat(most - 200)}"]}`],
  ["a broken image", `${chat}"prompt":"","images":["${"A".repeat(most - 200)}!"]}`],
  [
    "a data URL",
    `${chat}"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:;base64,${"A".repeat(most - 300)}"}]}]}`
  ],
  [
    "a broken data URL",
    `${chat}"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:;base64,${"A".repeat(most - 300)}!"}]}]}`
  ],
  [
    "a schema",
    filled(
      `${chat}"messages":[],"prompt":"","format":{"properties":{`,
      "}}}",
      (i) => `"p${i}":{"type":"string"}`
    )
  ]
]

const surfaces: ReadonlyArray<readonly [string, Dialect]> = [
  ["/api/chat", nativeChat],
  ["/api/generate", nativeGenerate],
  ["/v1/chat", openaiChat],
  ["/v1/compl", openaiCompletions]
]

const decide = (dialect: Dialect, bytes: Uint8Array): string => {
  const body = parseBody(bytes)
  if (Result.isFailure(body)) return body.failure
  const decoded = dialect.decode(body.success, {
    numPredictCap: 65_536,
    lowersOutput: false,
    numCtxCap: undefined
  })
  return Result.isSuccess(decoded) ? "accepted" : decoded.failure.detail
}

/** CPU of this process, in milliseconds: what other processes do to the clock does not count. */
const cpuOf = (work: () => void): number => {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

let worst = 0
process.stdout.write(`${"".padEnd(42)}${surfaces.map(([path]) => path.padStart(15)).join("")}\n`)
for (const [name, text] of bodies) {
  const bytes = Buffer.from(text)
  const figures = surfaces.map(([, dialect]) => {
    const runs = Array.from({ length: 5 }, () => cpuOf(() => void decide(dialect, bytes)))
    return Math.max(...runs)
  })
  worst = Math.max(worst, ...figures)
  process.stdout.write(
    `${name.padEnd(42)}${figures.map((ms) => `${ms.toFixed(1)} ms`.padStart(15)).join("")}\n`
  )
}
process.stdout.write(`slowest: ${worst.toFixed(1)} ms\n`)
if (worst > redLineMs) process.exitCode = 1
