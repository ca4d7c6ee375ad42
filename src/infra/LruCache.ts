/** A map with the `capacity` most recently used entries. No client can make it grow further. */
export type LruCache<V> = ReturnType<typeof makeLruCache<V>>

export const makeLruCache = <V>(capacity: number) => {
  // A Map iterates in the order of insertion, so a used entry is inserted again.
  const map = new Map<string, V>()
  let newest: string | undefined
  const set = (key: string, value: V): void => {
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
    /** returns the value and marks it as the most recently used */
    get: (key: string): V | undefined => {
      const value = map.get(key)
      if (value !== undefined && key !== newest) set(key, value)
      return value
    },
    /** returns the value without changing the order */
    peek: (key: string): V | undefined => map.get(key),
    set,
    delete: (key: string): void => void map.delete(key),
    clear: (): void => map.clear(),
    /** least recently used first */
    entries: (): Iterable<readonly [string, V]> => map.entries()
  }
}
