/** What objects take of V8's heap and of buffers, by full collections. For tests of bounds of memory. */
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

setFlagsFromString("--expose-gc")
const collect: () => void = runInNewContext("gc")

/** bytes of the heap and of buffers that are alive */
export const aliveBytes = (): number => {
  // V8 keeps the shapes of objects for two collections more.
  for (let n = 0; n < 4; n += 1) collect()
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
