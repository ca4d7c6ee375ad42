/** The gateway's own version: plain numbers, because some clients parse it with `int()` (ollama-wire §2.3). */
import manifest from "../package.json" with { type: "json" }

export const version = manifest.version
