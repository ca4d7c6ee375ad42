import { assert, it } from "@effect/vitest"
import { type Attached, makeAttached } from "../../../../src/infra/v8/Attached.ts"
import { heldAfter } from "../../../support/youngGarbage.ts"

interface Owner {
  readonly list: Array<number>
}
/** Refers to its key, as the state of a connection refers to its socket. */
interface State {
  readonly owner: Owner
}

/** How many owners are in memory after two collections of young objects. `values` are in old space by then. */
const heldBy = (values: Pick<Attached<Owner, State>, "set">): number =>
  heldAfter(2, (list) => {
    const owner = { list }
    values.set(owner, { owner })
  })

it("when a value is attached, then its object has it, and other objects have none", () => {
  const [first, second] = [makeAttached<object, string>(), makeAttached<object, string>()]
  const [one, other] = [{}, {}]
  first.set(one, "a")
  second.set(one, "b")
  assert.deepStrictEqual([first.get(one), second.get(one)], ["a", "b"])
  assert.deepStrictEqual([first.get(other), second.get(other)], [undefined, undefined])
  first.set(one, "c")
  assert.deepStrictEqual([first.get(one), second.get(one)], ["c", "b"])
  assert.deepStrictEqual(Reflect.ownKeys(one), [])
})

it("when an object is gone, then it and its value are collected with the young ones; a WeakMap keeps both", () => {
  assert.isBelow(heldBy(makeAttached<Owner, State>()), 5)
  assert.isAbove(heldBy(new WeakMap<Owner, State>()), 45)
})
