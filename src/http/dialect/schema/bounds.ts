/**
 * Bounds on the size of a schema. The model server turns it into a grammar: it repeats a rule `minItems` times, and
 * cuts a grammar that is larger than its buffer, which crashes its runner. docs/protocol.md has the same table.
 */
export const schemaBounds = {
  /** subschemas after `$ref`s are resolved */
  nodes: 500,
  /** subschemas inside each other */
  depth: 16,
  /** keywords of one subschema */
  keywords: 64,
  /** properties of one object */
  properties: 100,
  /** characters of a property's name */
  nameLength: 64,
  /** alternatives of one `anyOf` or `oneOf` */
  alternatives: 32,
  /** values of one `enum` */
  enumValues: 256,
  /** characters of all values of one `enum`, or of a `const`, as JSON */
  enumLength: 8192,
  /** `minLength`, `maxLength`, `minItems`, `maxItems`, and a number in the braces of a `pattern` */
  repetitions: 500,
  /** all of those of one schema together */
  allRepetitions: 2000,
  /** characters of a `pattern` */
  patternLength: 512,
  /** digits of `minimum` and `maximum` of an integer */
  integerDigits: 9
} as const
