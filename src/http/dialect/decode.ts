/** Decodes JSON with a schema. The first issue becomes the message of a 400. */
import { Result, Schema, SchemaIssue } from "effect"
import { type Decided, refuse } from "../../domain/Errors.ts"
import type { Json } from "../../domain/Inference.ts"

const issuesOf = SchemaIssue.makeFormatterStandardSchemaV1()

/** Maximal length of a message. It may contain a key that the client chose. */
export const maxDetail = 300

/** The message names the path and what is expected there, never the given value. */
const detailOf = (issue: SchemaIssue.Issue): string => {
  const first = issuesOf(issue).issues[0]
  const path = (first?.path ?? []).map(String).join(".")
  const expected = (first?.message ?? "Expected a valid value").replace(/^Expected/, "expected")
  return `${path === "" ? "body" : path}: ${expected === "Missing key" ? "missing" : expected}`.slice(
    0,
    maxDetail
  )
}

export const decodeWith = <A, I>(schema: Schema.Codec<A, I>) => {
  const decode = Schema.decodeUnknownResult(schema)
  return (json: Json): Decided<A> => {
    const decoded = decode(json)
    return Result.isSuccess(decoded)
      ? Result.succeed(decoded.success)
      : refuse(detailOf(decoded.failure.issue))
  }
}
