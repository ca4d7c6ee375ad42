/** Vectors from numbers, and back. */
import type { Vector } from "../../src/domain/Embeddings.ts"
import type { Json } from "../../src/domain/Inference.ts"

export const numbersOf = ({ json }: Vector): ReadonlyArray<number> => {
  const numbers: Json = JSON.parse(json.toString("latin1"))
  return Array.isArray(numbers) ? numbers.filter((value) => typeof value === "number") : []
}

export const vectorOf = (numbers: ReadonlyArray<number>): Vector => ({
  json: Buffer.from(JSON.stringify(numbers)),
  length: numbers.length
})
