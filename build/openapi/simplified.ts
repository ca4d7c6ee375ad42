/**
 * JSON Schema as generators of clients read it: they name each object after its place, and take an `anyOf` or `allOf` with anything
 * beside it for something else. So each object has a name of its own here, and nothing stands beside an `anyOf`.
 */
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import { isArray, isObject } from "../../src/domain/json.ts"

/** Whether a schema takes nothing: it is of a type that is refused. */
const isRefused = (schema: Json): boolean => {
  if (!isObject(schema)) return false
  const { allOf, not } = schema
  return (isObject(not) && Object.keys(not).length === 0) || (isArray(allOf) && allOf.some(isRefused))
}

/** Two schemas that both hold. The later one has the narrower bounds. */
const both = (schema: JsonObject, more: Json): JsonObject =>
  isObject(more) ? { ...schema, ...more } : schema

/** A part of a name: `content_block` is `ContentBlock`. */
const pascal = (text: string): string =>
  text.replaceAll(/(?:^|[^A-Za-z0-9]+)([A-Za-z0-9]?)/g, (_, first: string) => first.toUpperCase())

/** What tells an object from others in its place. */
const typeIn = ({ properties }: JsonObject): string => {
  const type = isObject(properties) ? properties["type"] : undefined
  const values = isObject(type) ? type["enum"] : undefined
  return isArray(values) && values.length === 1 ? String(values[0]) : ""
}

export const simplified = (schemas: JsonObject): JsonObject => {
  const named = new Map<string, Json>()
  /** names by the text of what they name */
  const names = new Map<string, string>()

  const nameFor = (schema: JsonObject, place: string): string => {
    const text = JSON.stringify(schema)
    const known = names.get(text)
    if (known !== undefined) return known
    const wanted = place + pascal(typeIn(schema))
    let name = wanted
    for (let n = 2; named.has(name) || name in schemas; n += 1) name = `${wanted}${n}`
    names.set(text, name)
    named.set(name, schema)
    return name
  }

  /** A reference to an object with properties, and everything else as it is. */
  const referred = (schema: Json, place: string): Json => {
    const simple = within(schema, place)
    return isObject(simple) && isObject(simple["properties"])
      ? { $ref: `#/components/schemas/${nameFor(simple, place)}` }
      : simple
  }

  const within = (schema: Json, place: string): Json => {
    if (!isObject(schema)) return schema
    const { allOf, ...own } = schema
    const merged = isArray(allOf) ? allOf.reduce<JsonObject>(both, own) : own
    const { anyOf, ...rest } = Object.fromEntries(
      Object.entries(merged).map(([key, value]): [string, Json] => {
        if (key === "properties" && isObject(value))
          return [
            key,
            Object.fromEntries(
              Object.entries(value).map(([name, inner]) => [name, referred(inner, place + pascal(name))])
            )
          ]
        if (key === "items" || key === "additionalProperties") return [key, referred(value, place)]
        if (key === "anyOf" && isArray(value))
          return [key, value.filter((member) => !isRefused(member)).map((member) => referred(member, place))]
        return [key, value]
      })
    )
    if (anyOf === undefined) return rest
    // Of an `anyOf` with one member, generators make a type that has no name.
    const [only, ...others] = isArray(anyOf) ? anyOf : []
    return isObject(only) && others.length === 0 ? { ...rest, ...only } : { ...rest, anyOf }
  }

  for (const [name, schema] of Object.entries(schemas)) {
    const simple = within(schema, name)
    names.set(JSON.stringify(simple), name)
    named.set(name, simple)
  }
  return Object.fromEntries([...named].toSorted(([one], [other]) => (one < other ? -1 : 1)))
}
