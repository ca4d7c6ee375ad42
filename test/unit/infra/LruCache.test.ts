import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { makeLruCache } from "../../../src/infra/LruCache.ts"

/** What it should hold, as a plain list: least recently used first. */
class Model {
  entries: Array<readonly [string, number]> = []
  find(key: string): number | undefined {
    return this.entries.find(([known]) => known === key)?.[1]
  }
  delete(key: string): void {
    this.entries = this.entries.filter(([known]) => known !== key)
  }
  set(key: string, value: number, capacity: number): void {
    this.delete(key)
    this.entries = [...this.entries, [key, value] as const].slice(-capacity)
  }
}

it("when values are put and read, then it holds those used last in the order of use, and never more than its bound", () => {
  const step = fc.record({
    verb: fc.constantFrom("get", "get", "get", "peek", "set", "set", "delete", "clear"),
    key: fc.constantFrom("a", "b", "c", "d", "e"),
    value: fc.nat(9)
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const capacity = 3
      const [recent, model] = [makeLruCache<number>(capacity), new Model()]
      for (const { key, value, verb } of steps) {
        if (verb === "get" || verb === "peek") {
          const known = model.find(key)
          assert.strictEqual(recent[verb](key), known)
          if (verb === "get" && known !== undefined) model.set(key, known, capacity)
        } else if (verb === "set") {
          recent.set(key, value)
          model.set(key, value, capacity)
        } else if (verb === "delete") {
          recent.delete(key)
          model.delete(key)
        } else {
          recent.clear()
          model.entries = []
        }
        assert.deepStrictEqual([...recent.entries()], model.entries)
      }
    })
  )
})
