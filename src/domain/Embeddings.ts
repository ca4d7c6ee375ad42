/** One vector, as numbers and as JSON. */
export interface Vector {
  /** each is finite as a float32 */
  readonly numbers: ReadonlyArray<number>
  /** the array as text, in the backend's own digits where possible */
  readonly json: string
}

/** The answer of an embedding model (docs/protocol.md, "Embeddings"). An absent count stays absent; it is not 0. */
export interface Embeddings {
  /** one per input, in the order of the inputs */
  readonly vectors: ReadonlyArray<Vector>
  /** nanoseconds */
  readonly totalDuration?: number
  readonly loadDuration?: number
  /** the older endpoint does not send it */
  readonly promptEvalCount?: number
}
