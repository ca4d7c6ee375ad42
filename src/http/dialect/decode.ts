/**
 * Decodes JSON with a schema. The first issue becomes the message of a 400, in the words of JSON: it never has a type of the
 * validator or the given value. Where objects of several types may stand, it lists the types that are read.
 */
import { Result, Schema, SchemaAST, SchemaIssue } from "effect"
import { type Decided, refuse } from "../../domain/Errors.ts"
import type { Json } from "../../domain/Inference.ts"
import { jsonText } from "../../domain/json.ts"
import { fateOf } from "./types.ts"

/** Maximal length of a message. It may contain a key that the client chose. */
export const maxDetail = 300

/** What a value may be. `null` is not told: it is as good as an absent value. */
const wordsOf = (ast: SchemaAST.AST): ReadonlyArray<string> => {
  switch (ast._tag) {
    case "Literal":
      return [jsonText(ast.literal)]
    case "Union":
      return ast.types.flatMap(wordsOf)
    case "Suspend":
      return wordsOf(ast.thunk())
    case "Null":
      return []
    case "Arrays":
      return ["array"]
    case "Declaration":
      return [String(ast.annotations?.["expected"] ?? "a valid value")]
    default:
      return [ast._tag === "Objects" ? "object" : ast._tag.toLowerCase()]
  }
}

/** The types of the objects that are read. */
const typesOf = (ast: SchemaAST.AST): ReadonlyArray<string> => {
  if (ast._tag === "Union") return ast.types.flatMap(typesOf)
  const type = ast._tag === "Objects" && ast.propertySignatures.find(({ name }) => name === "type")?.type
  return type && fateOf(ast) === undefined ? wordsOf(type) : []
}

const expected = (words: ReadonlyArray<string>): string => {
  const all = [...new Set(words)]
  const last = all.pop() ?? "null"
  return `expected ${all.length === 0 ? last : `${all.join(", ")} or ${last}`}`
}

const issuesOf = SchemaIssue.makeFormatterStandardSchemaV1()

interface Problem {
  readonly path: ReadonlyArray<PropertyKey>
  readonly message: string
}

const isAboutType = ({ path }: Problem): boolean => path.length === 1 && path[0] === "type"

/** What no member of a union takes. A member whose type is another one has nothing to say. */
const problemOfAny = ({ ast, issues }: SchemaIssue.AnyOf): Problem => {
  const fate = fateOf(ast)
  if (fate !== undefined) return { path: [], message: fate.why }
  const problem = issues.map(problemOf).find((one) => !isAboutType(one))
  if (problem !== undefined) return problem
  const types = typesOf(ast)
  if (types.length === 0) return { path: [], message: expected(wordsOf(ast)) }
  const others = wordsOf(ast).filter((word) => word !== "object")
  return others.length === 0
    ? { path: ["type"], message: expected(types) }
    : { path: [], message: expected([...others, ...types.map((type) => `type ${type}`)]) }
}

const problemOf = (issue: SchemaIssue.Issue): Problem => {
  if (issue._tag === "AnyOf") return problemOfAny(issue)
  if (issue._tag === "Pointer") {
    const { message, path } = problemOf(issue.issue)
    return { path: [...issue.path, ...path], message }
  }
  if (issue._tag === "Composite") return problemOf(issue.issues[0])
  if (issue._tag === "Encoding") return problemOf(issue.issue)
  const [first] = issuesOf(issue).issues
  return { path: [], message: first?.message ?? "expected a valid value" }
}

/** The message names the path and what is expected there. */
const detailOf = (issue: SchemaIssue.Issue): string => {
  const { message, path } = problemOf(issue)
  const words = message === "Missing key" ? "missing" : message.replace(/^Expected/, "expected")
  return `${path.length === 0 ? "body" : path.map(String).join(".")}: ${words}`.slice(0, maxDetail)
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
