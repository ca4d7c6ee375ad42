/**
 * Long runs of text: consecutive characters of one class. llama.cpp splits texts with `std::regex`, which recurses for each
 * character of a match: 11,000 letters in a row, or 33,500 digits, signs or blanks, overflow its stack and end the runner
 * (docs/protocol.md). Shown by `real/survival.real.ts`.
 */
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { isObject } from "../../../domain/json.ts"
import type { Tokenizer } from "../../../domain/Model.ts"

/** Maximal length of a run, in UTF-16 units. The longest runs in real texts are rulers of signs and lists without blanks. */
export const maxRun = 4096

/** The character classes in llama.cpp's expressions. Marks are in two of them: with letters, and with all other signs. */
const classes = [
  String.raw`[\p{L}\p{M}]`,
  String.raw`\p{N}`,
  String.raw`\p{White_Space}`,
  String.raw`[^\p{White_Space}\p{L}\p{N}]`
]

/** The run of a class around a place: before it in the first group, and from it on. */
const runs = classes.map((one) => new RegExp(`(?<=(${one}{0,${maxRun}}))${one}{0,${maxRun}}`, "uy"))

const runAround = (text: string, at: number): number =>
  runs.reduce((longest, run) => {
    run.lastIndex = at
    const [after = "", before = ""] = run.exec(text) ?? []
    return Math.max(longest, before.length + after.length)
  }, 0)

/** Whether a text has a run that is too long. Such a run covers a multiple of `maxRun`, so only these places are checked. */
const hasLongRun = (text: string): boolean => {
  for (let at = maxRun; at < text.length; at += maxRun) if (runAround(text, at) > maxRun) return true
  return false
}

/** Whether a text or a key inside a value has a run that is too long. */
const hasLongRunIn = (value: Json): boolean => {
  if (typeof value === "string") return hasLongRun(value)
  if (typeof value !== "object" || value === null) return false
  if (Array.isArray(value)) return value.some(hasLongRunIn)
  return Object.entries(value).some(([key, item]) => hasLongRun(key) || hasLongRunIn(item))
}

/** Removes the images of a message. They are not text, and are checked already. */
const withoutImages = (message: Json): Json => {
  if (!isObject(message) || message["images"] === undefined) return message
  const { images: _images, ...texts } = message
  return texts
}

/** Whether a run crosses messages. The model server joins messages with blank lines or with nothing between them. */
const hasLongRunAcross = (messages: ReadonlyArray<Json>): boolean => {
  const contents = messages.map((message) => {
    const content = isObject(message) ? message["content"] : ""
    return typeof content === "string" ? content : ""
  })
  return contents.length > 1 && (hasLongRun(contents.join("")) || hasLongRun(contents.join("\n\n")))
}

/** The field whose text has a run that is too long. */
export const fieldWithLongRun = (body: JsonObject): string | undefined =>
  Object.keys(body).find((field) => {
    const value = body[field] ?? null
    if (field === "images" || field === "context") return false
    return field === "messages" && Array.isArray(value)
      ? value.some((message: Json) => hasLongRunIn(withoutImages(message))) || hasLongRunAcross(value)
      : hasLongRunIn(value)
  })

/** Tokenizers for which llama.cpp uses loops instead of regular expressions; long runs do not affect them. */
const splitByLoop: ReadonlySet<string> = new Set([
  "gpt-2",
  "llama3",
  "llama-v3",
  "llama-bpe",
  "dbrx",
  "smaug-bpe",
  "starcoder",
  "refact",
  "command-r",
  "codeshell",
  "smollm"
])

/** Whether long runs overflow the stack. Only tokenizers of the kind `gpt2` split by regular expressions. */
export const overflowsOnLongRuns = ({ kind, split }: Tokenizer): boolean =>
  kind === "gpt2" && !splitByLoop.has(split)

/** What is wrong with the texts of a body for this tokenizer. */
export const runProblem = (body: JsonObject, tokenizer: Tokenizer): string | undefined => {
  const field = overflowsOnLongRuns(tokenizer) ? fieldWithLongRun(body) : undefined
  return field === undefined
    ? undefined
    : `${field}: this model takes at most ${maxRun} letters, digits, signs or blanks in a row`
}
