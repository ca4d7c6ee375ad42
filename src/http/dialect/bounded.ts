/** Numbers and lists of a request, each with its bound: a field that is forwarded is declared with one of these. */
import { Schema } from "effect"

/** Least and most, both allowed. */
export type Range = readonly [minimum: number, maximum: number]

const within = ([minimum, maximum]: Range) =>
  Schema.isBetween({ minimum, maximum }, { expected: `a number from ${minimum} to ${maximum}` })

export const numberIn = (range: Range) => Schema.Finite.check(within(range))

export const wholeIn = ([minimum, maximum]: Range) =>
  Schema.Int.check(
    Schema.isBetween({ minimum, maximum }, { expected: `a whole number from ${minimum} to ${maximum}` })
  )

/** At most `count` texts of at most `length` characters. */
export const textsIn = (count: number, length: number) =>
  Schema.Array(Schema.String.check(Schema.isMaxLength(length))).check(Schema.isMaxLength(count))
