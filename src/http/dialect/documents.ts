/** Files and documents on every surface: a text is read with its title, nothing else is (docs/protocol.md, "Documents"). */
import { isUtf8 } from "node:buffer"
import { Schema } from "effect"
import { isBase64 } from "./base64.ts"

export const notRead = "no PDF, address or stored file is read; send its text, or its pages as images"

/** The type and the base64 of a `data:` URL, or base64 without a type; undefined: neither. */
const encodedIn = (data: string): { readonly type: string; readonly base64: string } | undefined => {
  const comma = data.startsWith("data:") ? data.indexOf(",") : -1
  const [head, base64] = [data.slice(0, Math.max(0, comma)), data.slice(comma + 1)]
  if (!isBase64(base64) || (comma !== -1 && !head.endsWith(";base64"))) return undefined
  return { type: head.slice("data:".length), base64 }
}

// eslint-disable-next-line no-control-regex
const binary = /[\u0000-\u0008\u000e-\u001a\u001c-\u001f]/

/** The text of a file; undefined: it is no text, whatever type it is said to be of. */
export const fileText = (data: string): string | undefined => {
  const encoded = encodedIn(data)
  if (encoded === undefined || encoded.type.includes("pdf")) return undefined
  const bytes = Buffer.from(encoded.base64, "base64")
  if (!isUtf8(bytes)) return undefined
  const text = bytes.toString()
  return text.startsWith("%PDF") || binary.test(text) ? undefined : text
}

/** The base64 of a text. */
export const FileData = Schema.String.check(
  Schema.makeFilter((data) => fileText(data) !== undefined, { message: notRead })
).annotateKey({ messageMissingKey: notRead })

/** Lines of their own, because a surface may join texts without anything between them. */
export const lines = (...texts: ReadonlyArray<string | null | undefined>): string =>
  `\n${texts.filter((text) => text !== undefined && text !== null && text !== "").join("\n")}\n`
