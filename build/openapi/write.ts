/** `npm run openapi`: writes `openapi.json` and the generated tables of docs/reference.md and docs/protocol.md. */
import { writeFileSync } from "node:fs"
import { generated } from "./generated.ts"

for (const { file, text } of generated()) writeFileSync(file, text)
