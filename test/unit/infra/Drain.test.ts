import { assert, it } from "@effect/vitest"
import { RequestIds } from "../../../src/infra/RequestIds.ts"
import { Drain } from "../../../src/infra/Drain.ts"
import { testWith } from "../../support/testWith.ts"

const test = testWith(it.effect, Drain.layer)

test("when requests are cut, then each that still runs hears it, and so does one that comes later", function* () {
  const drain = yield* Drain
  const heard: Array<string> = []
  const listen = (name: string) => drain.onCut(() => heard.push(name))
  listen("first")
  const unregister = listen("gone")
  listen("last")
  unregister()
  yield* drain.cut
  listen("late")
  assert.deepStrictEqual(heard, ["first", "last", "late"])
})

test("when a key is stopped, then its requests hear it, also one that comes late, and no other does", function* () {
  const drain = yield* Drain
  const newId = yield* RequestIds
  const heard: Array<string> = []
  const listen = (name: string, keyPrefix: string, requestId = newId()) =>
    drain.onCut(({ refusal }) => heard.push(`${name}: ${refusal}`), {
      arrival: { requestId },
      caller: { keyPrefix }
    })
  const early = "00000000-0000-7000-8000-000000000000"
  listen("runs", "tg_AAAAAAAAA")
  listen("of another", "tg_BBBBBBBBB")
  drain.onCut(() => heard.push("of nobody"))
  drain.stop("tg_AAAAAAAAA")
  listen("late", "tg_AAAAAAAAA", early)
  listen("late of another", "tg_BBBBBBBBB", early)
  assert.deepStrictEqual(heard, [
    "runs: gateway: stopped by an operator",
    "late: gateway: stopped by an operator"
  ])
  listen("new", "tg_AAAAAAAAA", "ffffffff-ffff-7000-8000-000000000000")
  assert.lengthOf(heard, 2, "what arrives after the stop goes on")
})
