import { assert, it } from "@effect/vitest"
import { randomUUID } from "node:crypto"
import { Dictionary } from "../../../../src/infra/v8/Dictionary.ts"
import { heldAfter } from "../../../support/youngGarbage.ts"

it("when entries come and go, then a dictionary has what a Map would have", () => {
  const [dictionary, map] = [
    new Dictionary<{ readonly n: number }>(),
    new Map<string, { readonly n: number }>()
  ]
  const names = ["__proto__", "constructor", "7", "", ...Array.from({ length: 20 }, () => randomUUID())]
  for (let n = 0; n < 2000; n += 1) {
    const name = names[(n * 7919) % names.length] ?? ""
    if (n % 3 === 0) {
      dictionary.delete(name)
      map.delete(name)
    } else {
      dictionary.set(name, { n })
      map.set(name, { n })
    }
    assert.strictEqual(dictionary.size, map.size)
  }
  assert.sameMembers([...dictionary.keys], [...map.keys()])
  for (const name of names) assert.deepStrictEqual(dictionary.get(name), map.get(name))
})

it("when an entry was removed, then the next collections of young objects free it, however many came and went", () => {
  const dictionary = new Dictionary<{ readonly list: ReadonlyArray<number> }>()
  const pass = (list: ReadonlyArray<number>): void => {
    const ids = Array.from({ length: 40 }, () => randomUUID())
    for (const id of ids) dictionary.set(id, { list })
    for (const id of ids) dictionary.delete(id)
  }
  for (let n = 0; n < 200; n += 1) pass([])
  assert.isBelow(heldAfter(2, pass), 5)
  assert.strictEqual(dictionary.size, 0)
})

it("when there are more entries than the table has places, then all are found, and each can be removed", () => {
  const dictionary = new Dictionary<{ readonly n: number }>()
  // Half of them end alike, so that many have the same place.
  const names = Array.from({ length: 1000 }, (_, n) => (n % 2 === 0 ? `${n} ends alike` : randomUUID()))
  for (const [n, name] of names.entries()) dictionary.set(name, { n })
  assert.sameMembers([...dictionary.keys], names)
  for (const [n, name] of names.entries()) {
    assert.deepStrictEqual(dictionary.get(name), { n })
    dictionary.delete(name)
    assert.isUndefined(dictionary.get(name))
    assert.strictEqual(dictionary.size, names.length - n - 1)
  }
})
