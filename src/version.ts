/** The gateway's own version. It must be plain numbers: some clients parse each of them with `int()`. */
import manifest from "../package.json" with { type: "json" }

export const version = manifest.version
