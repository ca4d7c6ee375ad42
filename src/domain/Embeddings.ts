/** What an embedding model answers, rebuilt (ollama-wire §1.6, §1.7): absent counts are absent, not 0. */
export interface Embeddings {
  /** one per input, in the order of the inputs; every number is finite as a float32 */
  readonly vectors: ReadonlyArray<ReadonlyArray<number>>
  /** nanoseconds */
  readonly totalDuration?: number
  readonly loadDuration?: number
  /** never told by the legacy endpoint */
  readonly promptEvalCount?: number
}
