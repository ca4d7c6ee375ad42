import { assert, it } from "@effect/vitest"
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
