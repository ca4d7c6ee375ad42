/**
 * What becomes of a part, block, item or tool of a request, by its type: it is read, and reaches the model; it is refused in words;
 * or it is left out, because it cannot matter. The schemas of the surfaces are the table: `docs/protocol.md` has it from them
 * ("Types"), and a type that is in none of them is refused.
 */
import { Schema, SchemaAST } from "effect"

/** Why a type is not read, for the client that is refused and for `docs/protocol.md`. */
export interface Fate {
  readonly is: "refused" | "left out"
  readonly why: string
}

/** undefined: objects of the type are read */
export const fateOf = (ast: SchemaAST.AST): Fate | undefined => {
  const annotations = SchemaAST.resolve(ast)
  const [refused, left] = [annotations?.["refused"], annotations?.["leftOut"]]
  if (typeof refused === "string") return { is: "refused", why: refused }
  return typeof left === "string" ? { is: "left out", why: left } : undefined
}

const typed = <const T extends string>(type: T) => Schema.Struct({ type: Schema.Literal(type) })

/** A type of which nothing is sent. One member for each, because a union finds its member by a single literal. */
export const leftOut = <const T extends string>(why: string, ...types: ReadonlyArray<T>) =>
  types.map((type) => typed(type).annotate({ leftOut: why }))

const isNever = (value: unknown): value is never => value === undefined

/** No value has the type; its objects are refused with `why`, which says what to do. */
export const refusing = <S extends Schema.Top>(schema: S, why: string) =>
  schema.pipe(Schema.refine(isNever, { message: why, refused: why, toJsonSchema: () => ({ not: {} }) }))

export const refused = (why: string, ...types: ReadonlyArray<string>) =>
  types.map((type) => refusing(typed(type), why))

/** A field that nothing here can honour: `null` and values of `idle` ask for nothing, others are refused with `why`, which says what to do. */
export const unsupported = <const M extends ReadonlyArray<Schema.Top>>(why: string, ...idle: M) =>
  Schema.optionalKey(Schema.Union([Schema.Null, ...idle]).annotate({ refused: why }))
