/** The JSON of a request body, from its bytes: valid UTF-8, then strict JSON. */
import { Result } from "effect"
import type { Json } from "../../domain/Inference.ts"
import { parseJson } from "./strictJson.ts"

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const decodeUtf8 = (bytes: ArrayBuffer | Uint8Array): Result.Result<string, string> =>
  Result.try({ try: () => utf8.decode(bytes), catch: () => "body: expected valid UTF-8" })

export interface Body {
  readonly json: Json
  /** size as received */
  readonly bytes: number
}

/** Returns the decoded bytes, or a message about what is wrong. */
export const parseBody = (bytes: ArrayBuffer | Uint8Array): Result.Result<Body, string> =>
  bytes.byteLength === 0
    ? Result.fail("body: missing")
    : Result.map(Result.flatMap(decodeUtf8(bytes), parseJson), (json) => ({ json, bytes: bytes.byteLength }))
