/** What is taken for an answer of a script, and what is not. */
import { assert, it } from "@effect/vitest"
import { parseJson, readReply } from "../../../../../src/gates/meter/redis/replies.ts"

const read = (text: string) => readReply(parseJson(text))

it("when a reply is well-formed, then its numbers and ids have their names", () => {
  const left = {
    requests: 5,
    tokens: 6,
    budgets: [7, -1, 8, -1, -1, 9],
    now: 10,
    requestsResetMs: 11,
    tokensResetMs: 12
  }
  assert.deepStrictEqual(read('["reserved",1,2,3,1,5,6,7,-1,8,-1,-1,9,10,11,12]'), {
    tag: "reserved",
    admittedAt: 1,
    held: 2,
    available: 3,
    slot: true,
    left
  })
  assert.deepStrictEqual(read('["surveyed",4,2,7,-1,9,["a b","c"]]'), {
    tag: "surveyed",
    mark: 4,
    open: 2,
    totals: { day: 7, total: 9 },
    ids: ["a b", "c"]
  })
  assert.deepInclude(read('["surveyed",4,2,7,-1,9]'), { ids: [] })
})

it.each([
  "",
  "12",
  "[]",
  '["lost",1,2]',
  '["toString"]',
  '["renewed",1]',
  '["renewed",1,2,3]',
  '["renewed",1,"2"]',
  '["stale",1.5]',
  '["stale",9007199254740993]',
  '["reserved",1,2,3,1,5,6]',
  '["renewed",1,2'
])("when a reply is %s, then it is no answer", (text) => assert.isUndefined(read(text)))
