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

/** The bytes that the result of `make` keeps alive. It is made twice, so that code and tables of V8 do not count. */
export const bytesOf = <A>(make: () => A): { readonly bytes: number; readonly made: A } => {
  make()
  const before = aliveBytes()
  const made = make()
  return { bytes: aliveBytes() - before, made }
}
