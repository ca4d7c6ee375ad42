/** What is taken for an answer of a script, and what is not. */
import { assert, it } from "@effect/vitest"
import { tryParseJson } from "../../../../../src/domain/json.ts"
import { readReply } from "../../../../../src/gates/meter/redis/replies.ts"

const read = (text: string) => readReply(tryParseJson(text), false)

it("when a reply is well-formed, then its numbers and ids have their names", () => {
  const left = {
    windows: { requests: 5, tokens: 6, requestsResetMs: 11, tokensResetMs: 12 },
    userWindows: undefined,
    budgets: [7, 2, -1, 8, -1, -1, -1, 9],
    now: 10
  }
  assert.deepStrictEqual(read('["reserved",1,2,3,1,5,6,7,2,-1,8,-1,-1,-1,9,10,11,12]'), {
    tag: "reserved",
    admittedAt: 1,
    held: 2,
    available: 3,
    slot: true,
    left
  })
  assert.deepStrictEqual(read('["surveyed",4,2,7,-1,-1,9,["a b","c"]]'), {
    tag: "surveyed",
    mark: 4,
    open: 2,
    totals: { day: 7, total: 9 },
    ids: ["a b", "c"]
  })
  assert.deepInclude(read('["surveyed",4,2,7,-1,-1,9]'), { ids: [] })
})

it("when a reply is about a user too, then it has the windows and budgets of both", () => {
  const text = '["left",1,2,3,4,5,-1,-1,-1,6,-1,-1,-1,-1,7,-1,-1,8,9,10,11,12]'
  assert.deepStrictEqual(readReply(tryParseJson(text), true), {
    tag: "left",
    left: {
      windows: { requests: 1, tokens: 2, requestsResetMs: 9, tokensResetMs: 10 },
      userWindows: { requests: 3, tokens: 4, requestsResetMs: 11, tokensResetMs: 12 },
      budgets: [5, -1, -1, -1, 6, -1, -1, -1, -1, 7, -1, -1],
      now: 8
    }
  })
  assert.isUndefined(read(text))
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
  '["stale",1.5,-1]',
  '["stale",1]',
  '["stale",9007199254740993,-1]',
  '["reserved",1,2,3,1,5,6]',
  '["renewed",1,2'
])("when a reply is %s, then it is no answer", (text) => assert.isUndefined(read(text)))
