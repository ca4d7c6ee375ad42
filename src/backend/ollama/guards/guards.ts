/** All guards of Ollama. Each file names what happens without it, and the test with a real server that shows it. */
import { Context } from "effect"
import type { Guards } from "../../Guards.ts"
import { admitSchema } from "./schemas.ts"
import { runProblem } from "./textRuns.ts"

export const guards: Guards = { schema: admitSchema, problem: runProblem }

/** `GUARDS=off npm run test:real` shows what a server does without them. */
export const GuardsInForce = Context.Reference<Guards>("tollgate/backend/ollama/guards", {
  defaultValue: () => guards
})
