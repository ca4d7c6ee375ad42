/** Bounds of a schema and of its grammar. docs/protocol.md has the same table. */
export const schemaBounds = {
  /** subschemas, after `$ref`s are replaced */
  subschemas: 500,
  /** subschemas inside each other */
  depth: 32,
  /** keywords of one subschema */
  keywords: 64,
  /** schemas of one `allOf` */
  merged: 32,
  /** values of one `enum` */
  enumValues: 500,
  /** characters of a `pattern` that is kept */
  patternLength: 512,
  /** `minLength`, `maxLength`, `minItems`, `maxItems`, and a number in the braces of a `pattern` */
  repetitions: 500,
  /** all of those of one schema together */
  allRepetitions: 2000,
  /** digits of `minimum` and `maximum` of an integer */
  integerDigits: 9,
  /**
   * Characters of the grammar. Ollama's buffer has 32,768, and half a grammar ends its runner. Each part of a schema counts
   * with more than Ollama 0.24.0 writes for it. It names a rule by its whole path (`order-lines-item-price`), so long names
   * inside each other count most.
   */
  grammar: 32_000
} as const
