/** `npm run openapi`: writes what is made of the code into `openapi.json` and into the tables of the papers. */
import { writeFileSync } from "node:fs"
import { generated } from "./generated.ts"

for (const { file, text } of generated()) writeFileSync(file, text)
