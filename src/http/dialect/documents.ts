/** Files and documents on every surface: a text is read with its title, nothing else is (docs/protocol.md, "Documents"). */
import { isUtf8 } from "node:buffer"
import { Schema } from "effect"

export const notRead = "no PDF, address or stored file is read; send its text, or its pages as images"

/** Base64, or a `data:` URL of it. */
const encoded = /^(?:data:([^,]*);base64,)?([A-Za-z0-9+/]*={0,2})$/

// eslint-disable-next-line no-control-regex
const binary = /[\u0000-\u0008\u000e-\u001a\u001c-\u001f]/

/** The text of a file; undefined: it is no text, whatever type it is said to be of. */
export const fileText = (data: string): string | undefined => {
  const [, type = "", base64] = encoded.exec(data) ?? []
  if (base64 === undefined || type.includes("pdf")) return undefined
  const bytes = Buffer.from(base64, "base64")
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
