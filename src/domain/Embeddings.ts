/** The answer of an embedding model (docs/protocol.md, "Embeddings"). An absent count stays absent; it is not 0. */
export interface Embeddings {
  /** one per input, in the order of the inputs; every number is finite as a float32 */
  readonly vectors: ReadonlyArray<ReadonlyArray<number>>
  /** the JSON of each vector, as the model server wrote it: to write numbers again takes twice the time of reading them */
  readonly texts?: ReadonlyArray<string>
  /** nanoseconds */
  readonly totalDuration?: number
  readonly loadDuration?: number
  /** the older endpoint does not send it */
  readonly promptEvalCount?: number
}

/** The JSON of each vector. */
export const jsonOf = ({ texts, vectors }: Embeddings): ReadonlyArray<string> =>
  texts ?? vectors.map((vector) => JSON.stringify(vector))
