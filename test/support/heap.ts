/** What objects take of V8's heap and of buffers, by full collections. For tests of bounds of memory. */
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

setFlagsFromString("--expose-gc")
// Otherwise V8 keeps the shapes of objects for two collections more.
setFlagsFromString("--retain-maps-for-n-gc=0")
const collect: () => void = runInNewContext("gc")

/** bytes of the heap and of buffers that are alive */
export const aliveBytes = (): number => {
  // V8 keeps the text of the last match.
  void /^/.exec("")
  // The first one finds the buffers that the second one frees. Each takes its time in a process with the heap of many tests.
  collect()
  collect()
  const { external, heapUsed } = process.memoryUsage()
  return heapUsed + external
}

interface Measured<A> {
  readonly bytes: number
  readonly made: A
}

/**
 * The bytes that the result of `make` keeps alive. Code and tables of V8 do not count: the first result is not measured, and one with
 * more than `mostOf` is made again, because V8 may compile at any time.
 */
export const bytesOf = <A>(make: () => A, mostOf: (made: A) => number): Measured<A> => {
  const measure = (): Measured<A> => {
    const before = aliveBytes()
    const made = make()
    return { bytes: aliveBytes() - before, made }
  }
  make()
  let least = measure()
  for (let again = 0; again < 3 && least.bytes > mostOf(least.made); again += 1) {
    const next = measure()
    if (next.bytes < least.bytes) least = next
  }
  return least
}
