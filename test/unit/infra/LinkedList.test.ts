import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { Link, LinkedList } from "../../../src/infra/LinkedList.ts"

/** Adds the next number, or removes the number at a place among all that were ever added. */
const steps = fc.array(fc.option(fc.nat(30), { nil: undefined }), { maxLength: 60 })

it("when values come and go in any order, then it has those of an array, the oldest first", () => {
  fc.assert(
    fc.property(steps, (sequence) => {
      const [list, links, model] = [new LinkedList<number>(), new Array<Link<number>>(), new Array<number>()]
      for (const step of sequence) {
        const link = step === undefined ? undefined : links[step]
        if (link === undefined) {
          const added = new Link(links.length)
          links.push(added)
          list.add(added)
          model.push(added.value)
        } else {
          const at = model.indexOf(link.value)
          assert.strictEqual(list.has(link), at !== -1)
          assert.strictEqual(list.remove(link), at !== -1)
          if (at !== -1) model.splice(at, 1)
          // Otherwise a link that is garbage would keep others.
          assert.deepStrictEqual([link.older, link.newer, link.list], [undefined, undefined, undefined])
        }
        assert.deepStrictEqual([list.all, list.size, list.oldest], [model, model.length, model[0]])
      }
    })
  )
})
