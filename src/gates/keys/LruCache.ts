/** A map that holds the `capacity` entries used last, so that nothing a client sends can make it grow. */
export interface LruCache<V> {
  /** the value, now the one used last */
  get(key: string): V | undefined
  /** the value, its place in the order unchanged */
  peek(key: string): V | undefined
  set(key: string, value: V): void
  delete(key: string): void
  clear(): void
  /** least recently used first */
  entries(): Iterable<readonly [string, V]>
}

export const makeLruCache = <V>(capacity: number): LruCache<V> => {
  // A Map iterates in the order of insertion: to use an entry is to insert it again.
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
