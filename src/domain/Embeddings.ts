/** One vector as JSON text. Parsed numbers would take the memory a second time. */
export interface Vector {
  /** the array in ASCII, with the backend's digits; every number is finite as a float32 */
  readonly json: Buffer
  /** how many numbers it has */
  readonly length: number
}

/** The answer of an embedding model (docs/protocol.md, "Embeddings"). An absent count stays absent; it is not 0. */
export interface Embeddings {
  /** one per input, in the order of the inputs */
  readonly vectors: ReadonlyArray<Vector>
  /** all vectors as one JSON list, in parts, when the backend wrote them so */
  readonly list?: ReadonlyArray<Buffer>
  /** Frees the memory of the vectors (`infra/freeBuffer.ts`). They are empty afterwards. */
  readonly release?: () => void
  /** nanoseconds */
  readonly totalDuration?: number
  readonly loadDuration?: number
  /** the older endpoint does not send it */
  readonly promptEvalCount?: number
}
