/**
 * Frees the memory of buffers at once.
 *
 * V8 frees it only when it collects the object. It counts the memory of buffers, and collects its whole heap whenever
 * 64 MiB more of it are in use (`external_memory_limit`), however much of that is garbage. A full collection costs more than
 * everything else that a large answer needs.
 *
 * Only for memory that nobody uses any more: all buffers in it become empty. The kernel must have taken what was written from
 * it, because the writing does not keep it.
 */

/** Frees `memory`. It must not be the pool from which Node makes small buffers. */
export const freeMemory = (memory: ArrayBufferLike): void => {
  // The memory goes to a new buffer of length 0, which needs none.
  if (memory instanceof ArrayBuffer && memory.byteLength > 0) memory.transfer(0)
}

/** Frees the memory of `bytes`, unless it is only a part of a larger memory, as that of a small buffer is. */
export const freeBuffer = (bytes: Uint8Array): void => {
  if (bytes.length === bytes.buffer.byteLength) freeMemory(bytes.buffer)
}

/** Frees the memory that `bytes` are in, unless they are few and may be in the pool. All of it must belong to them. */
export const freeLarge = (bytes: Uint8Array): void => {
  if (bytes.length >= Buffer.poolSize) freeMemory(bytes.buffer)
}
