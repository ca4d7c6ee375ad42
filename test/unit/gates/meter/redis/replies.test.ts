/** What is taken for an answer of a script, and what is not. */
import { assert, it } from "@effect/vitest"
import { tryParseJson } from "../../../../../src/domain/json.ts"
import { readReply } from "../../../../../src/gates/meter/redis/replies.ts"

const read = (text: string, accounts = 1) => readReply(tryParseJson(text), accounts)

it("when a reply is well-formed, then its numbers and ids have their names", () => {
  const left = {
    windows: [{ requests: 5, tokens: 6, requestsResetMs: 11, tokensResetMs: 12 }],
    budgets: [7, 2, -1, 8, -1, -1, -1, 9],
    now: 10
  }
  assert.deepStrictEqual(read('["reserved",1,2,3,1,5,6,11,12,7,2,-1,8,-1,-1,-1,9,10]'), {
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

it("when a reply is about a user and a model too, then it has the windows and budgets of each", () => {
  const text = '["left",1,2,3,4,5,6,7,8,9,10,11,12,20,-1,-1,-1,21,-1,-1,-1,-1,22,-1,-1,23,-1,-1,-1,99]'
  assert.deepStrictEqual(read(text, 3), {
    tag: "left",
    left: {
      windows: [
        { requests: 1, tokens: 2, requestsResetMs: 3, tokensResetMs: 4 },
        { requests: 5, tokens: 6, requestsResetMs: 7, tokensResetMs: 8 },
        { requests: 9, tokens: 10, requestsResetMs: 11, tokensResetMs: 12 }
      ],
      budgets: [20, -1, -1, -1, 21, -1, -1, -1, -1, 22, -1, -1, 23, -1, -1, -1],
      now: 99
    }
  })
  assert.isUndefined(read(text))
  assert.isUndefined(read(text, 2))
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
