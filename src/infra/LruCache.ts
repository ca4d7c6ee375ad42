/** A map with the `capacity` most recently used entries. No client can make it grow further. */
export interface LruCache<V> {
  /** returns the value and marks it as the most recently used */
  get(key: string): V | undefined
  /** returns the value without changing the order */
  peek(key: string): V | undefined
  set(key: string, value: V): void
  delete(key: string): void
  clear(): void
  /** least recently used first */
  entries(): Iterable<readonly [string, V]>
}

export const makeLruCache = <V>(capacity: number): LruCache<V> => {
  // A Map iterates in the order of insertion, so a used entry is inserted again.
  const map = new Map<string, V>()
  let newest: string | undefined
  const set = (key: string, value: V) => {
    newest = key
    map.delete(key)
    map.set(key, value)
    if (map.size <= capacity) return
    for (const oldest of map.keys()) {
      map.delete(oldest)
      return
    }
  }
  return {
    get: (key) => {
      const value = map.get(key)
      if (value !== undefined && key !== newest) set(key, value)
      return value
    },
    peek: (key) => map.get(key),
    set,
    delete: (key) => {
      map.delete(key)
    },
    clear: () => map.clear(),
    entries: () => map.entries()
  }
}
