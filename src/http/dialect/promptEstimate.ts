/**
 * What a prompt will cost before the backend has counted it: about four UTF-8 bytes to a token, a few tokens of template
 * around each message, a thousand or more for an image, by its pixels.
 *
 * The size is taken over the decoded request, which is what the backend is sent, and not over a list of fields: every
 * string in `body` and `options` counts, and every key and number inside of them, so a field that is added later counts
 * too. Left out are the names of our own fields, which no client chooses. Images and the ids of a `context` are counted
 * by their place, not by a name: a tool argument may be called `images` as well.
 *
 * What is inside of an object, as the arguments of a tool call or the definition of a tool, is text of JSON in the prompt.
 * Ollama writes it as Go does: a `<`, `>` or `&`, a control character and U+2028 or U+2029 take six bytes. Our own fields of
 * text, and lists of texts, stand in the prompt as they are.
 *
 * Measured against two public tokenizers (`bench/prompts.ts`; text alone, templates come on top): English -15 %, program
 * text +3 %, indented JSON -32 %, German, French and Polish -27 to +19 %, Chinese and Japanese -35 to -11 %, Cyrillic and
 * Devanagari -31 to +131 %; at worst, Base64 and digits, -64 %. By so much of its prompt can a request go over a budget
 * that it spends to the end; it is charged what the backend counted.
 */
import type { DecodedRequest, InferenceRequest, Json, JsonObject } from "../../domain/Inference.ts"
import { isArray, isObject } from "../../domain/json.ts"
import { bytesPerToken, tokensOfBytes } from "../../domain/textTokens.ts"
import { pixelsOf } from "./images.ts"

/** The template around a message, with its role. */
const tokensPerMessage = 8
/** Most vision encoders cost 256 to 2000 tokens; some cost a token for each square of 28 pixels. */
const tokensPerImage = 1024
const pixelsPerToken = 28 * 28

/** Estimated tokens of one piece of text. */
export const estimateText = (text: string): number => tokensOfBytes(Buffer.byteLength(text))

/** What Go escapes in a string of JSON. */
// eslint-disable-next-line no-control-regex
const escapedInJson = /["\\<>&\u0000-\u001f\u2028\u2029]/

/** Bytes that a sign takes in a string of JSON beyond its own: `\n` has two bytes there, `\u003c` has six. */
const escapeBytes = (code: number): number => {
  if (code === 0x2028 || code === 0x2029) return 3
  if (code < 0x20) return code === 8 || code === 9 || code === 10 || code === 12 || code === 13 ? 1 : 5
  if (code === 0x22 || code === 0x5c) return 1
  return code === 0x3c || code === 0x3e || code === 0x26 ? 5 : 0
}

/** UTF-8 bytes of `text` in a string of JSON, without the quotes around it. */
const jsonBytes = (text: string): number => {
  let bytes = Buffer.byteLength(text)
  if (!escapedInJson.test(text)) return bytes
  for (let i = 0; i < text.length; i += 1) bytes += escapeBytes(text.charCodeAt(i))
  return bytes
}

class Size {
  bytes = 0
  tokens = 0

  #add(bytes: number, tokens: number): void {
    this.bytes += bytes
    this.tokens += tokens
  }

  #addText(bytes: number): void {
    this.#add(bytes, tokensOfBytes(bytes))
  }

  /** Everything in a value: texts, keys and numbers, each of them at least a token. What is inside of an object is JSON. */
  #addAll(value: Json, inObject = false): void {
    if (typeof value === "string") this.#addText(inObject ? jsonBytes(value) : Buffer.byteLength(value))
    else if (typeof value === "number") this.#addText(String(value).length)
    else if (typeof value !== "object" || value === null) this.#addText(4)
    else if (isArray(value)) for (const item of value) this.#addAll(item, inObject)
    else {
      for (const key of Object.keys(value)) {
        this.#addText(jsonBytes(key))
        this.#addAll(value[key] ?? null, true)
      }
    }
  }

  /** An object whose keys are ours. A number or a boolean right inside is a setting, not text. */
  addFields(fields: JsonObject, special: (key: string, value: Json) => boolean): void {
    for (const key of Object.keys(fields)) {
      const value = fields[key] ?? null
      if (typeof value === "string" || typeof value === "object") {
        if (!special(key, value)) this.#addAll(value)
      }
    }
  }

  #addImages(images: ReadonlyArray<Json>): void {
    for (const image of images) {
      const pixels = typeof image === "string" ? (pixelsOf(image) ?? 0) : 0
      this.#add(0, Math.max(tokensPerImage, Math.ceil(pixels / pixelsPerToken)))
    }
  }

  #addMessage(message: Json): void {
    this.#add(tokensPerMessage * bytesPerToken, tokensPerMessage)
    if (!isObject(message)) return this.#addAll(message)
    this.addFields(message, (key, value) => {
      // One of a few words, and part of the template.
      if (key === "role") return true
      if (key !== "images" || !isArray(value)) return false
      this.#addImages(value)
      return true
    })
  }

  addBody(body: JsonObject): void {
    this.addFields(body, (key, value) => {
      if (!isArray(value)) return false
      if (key === "messages") for (const message of value) this.#addMessage(message)
      else if (key === "images") this.#addImages(value)
      else if (key === "context") this.#add(value.length, value.length)
      else return false
      return true
    })
  }

  addPrompt(): void {
    this.#add(0, tokensPerMessage)
  }
}

const noneSpecial = () => false

/** The request with the size of what it forwards: the only place where a prompt is estimated. */
export const withPromptSize = (request: DecodedRequest): InferenceRequest => {
  // A description does not run the model.
  if (request.kind === "show") return { ...request, promptBytes: 0, promptEstimate: 0 }
  const size = new Size()
  if (request.kind === "generate") size.addPrompt()
  size.addBody(request.body)
  size.addFields(request.options, noneSpecial)
  return { ...request, promptBytes: size.bytes, promptEstimate: Math.max(1, size.tokens) }
}
