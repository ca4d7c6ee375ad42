/**
 * The schemas that are forwarded: written anew in a subset that the model server turns into a grammar without harm. Its
 * converter runs in the server's main process, and takes that down, or its runner, for schemas that many clients send.
 *
 * A keyword that only narrows an answer, and that the server cannot take, is left out, and its name is told. A schema that
 * nothing can match, or that means something else without the keyword, is refused in words. `$ref`s are replaced by what
 * they refer to; where one refers to itself, everything of its type is allowed. The table is in docs/protocol.md.
 */
import { Result } from "effect"
import type { JsonObject } from "../../../domain/Inference.ts"
import { Admission } from "./Admission.ts"
import { grammarBytes, grammarSize } from "./grammar.ts"

export interface AdmittedSchema {
  readonly schema: JsonObject
  /** keywords that were left out, each once, in order of the alphabet */
  readonly relaxed: ReadonlyArray<string>
}

/** The schema as it is forwarded, or one sentence about why it is not. `at`: the field it stands in. */
export const admitSchema = (schema: JsonObject, at: string): Result.Result<AdmittedSchema, string> => {
  const admission = new Admission(schema, at)
  const visited = admission.visit(schema, at, 1, "")
  if (admission.problem !== undefined) return Result.fail(admission.problem)
  // Inside of another schema every rule's name begins with its name, and is nobody else's.
  const admitted = admission.collides ? { anyOf: [visited] } : visited
  if (grammarSize(admitted) >= grammarBytes(admitted)) {
    return Result.fail(`${at}: expected a smaller schema, or shorter names in it`)
  }
  return Result.succeed({ schema: admitted, relaxed: [...admission.relaxed].sort() })
}
