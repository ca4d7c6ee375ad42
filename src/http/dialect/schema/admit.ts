/**
 * Rewrites schemas in a subset that the model server can turn into a grammar safely. Its converter runs in the main
 * process of the server, and schemas of common clients crash that process or its runner.
 *
 * A keyword that only narrows the answer, and that the server cannot use, is left out and reported. A schema that
 * nothing can match, or that would have another meaning without the keyword, is refused with a message. `$ref`s are
 * replaced by their targets; where one refers to itself, everything of its type is allowed. docs/protocol.md has the
 * table.
 */
import { Result } from "effect"
import type { JsonObject } from "../../../domain/Inference.ts"
import { Admission } from "./Admission.ts"
import { grammarBytes, grammarSize } from "./grammar.ts"

export interface AdmittedSchema {
  readonly schema: JsonObject
  /** keywords that were left out, each once, in alphabetical order */
  readonly relaxed: ReadonlyArray<string>
}

/**
 * The rewritten schema, or a sentence about why it is refused. `at`: the field of the request that has the schema.
 */
export const admitSchema = (schema: JsonObject, at: string): Result.Result<AdmittedSchema, string> => {
  const admission = new Admission(schema, at)
  const visited = admission.visit(schema, at, 1, "")
  if (admission.problem !== undefined) return Result.fail(admission.problem)
  // Inside another schema the name of each rule begins with the name of that schema, so names cannot collide.
  const admitted = admission.collides ? { anyOf: [visited] } : visited
  if (grammarSize(admitted) >= grammarBytes(admitted)) {
    return Result.fail(`${at}: expected a smaller schema, or shorter names in it`)
  }
  return Result.succeed({ schema: admitted, relaxed: [...admission.relaxed].sort() })
}
