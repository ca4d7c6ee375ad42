/** What the answer to `GET /api/version` says. */
import { isObject, tryParseJson } from "../../domain/json.ts"
import type { Pinged } from "../Backend.ts"

/** The oldest version that is supported: docs/deploy.md, "Versions of Ollama". */
export const oldestVersion = "0.33"

/** A build from the sources says 0.0.0. */
export const decodePinged = (text: string): Pinged => {
  const answer = tryParseJson(text)
  const version = isObject(answer) ? answer["version"] : undefined
  const [, minor] = typeof version === "string" ? (/^0\.(\d{1,4})\.\d{1,4}\b/.exec(version) ?? []) : []
  return typeof version === "string" && Number(minor) > 0 && Number(minor) < 33
    ? { tooOld: version.slice(0, 32) }
    : {}
}
