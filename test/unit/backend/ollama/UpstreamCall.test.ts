/** The deadlines of a call to the backend: it never has two, and none when it is over. */
import { assert, it } from "@effect/vitest"
import type { Dispatcher } from "undici"
import type { Timer } from "../../../../src/infra/time.ts"
import { UpstreamCall } from "../../../../src/backend/ollama/UpstreamCall.ts"

interface Running {
  readonly ms: number
  readonly callback: () => void
}

/** A call whose deadlines are seen, and whose response the test plays. */
const begin = () => {
  const running = new Set<Running>()
  const timer: Timer = (ms, callback) => {
    const one = { ms, callback }
    running.add(one)
    return () => void running.delete(one)
  }
  const aborts: Array<Error | undefined> = []
  const controller: Dispatcher.DispatchController = {
    aborted: false,
    paused: false,
    reason: null,
    rawHeaders: null,
    rawTrailers: null,
    abort: (reason) => void aborts.push(reason),
    pause: () => undefined,
    resume: () => undefined
  }
  const call = new UpstreamCall(timer)
  call.setDeadline(60_000, "not in time")
  call.onRequestStart(controller)
  call.onResponseStart(controller, 200, {})
  const deadlines = () => [...running].map(({ ms }) => ms)
  const letPass = () => running.forEach(({ callback }) => callback())
  return { call, controller, aborts, deadlines, letPass }
}

it("when the rest of a response is discarded, then its deadline is the only one", () => {
  const { aborts, call, deadlines, letPass } = begin()
  assert.deepStrictEqual(deadlines(), [60_000])
  call.finish()
  const [rest = Number.NaN, ...others] = deadlines()
  assert.deepStrictEqual(others, [])
  assert.isBelow(rest, 5000)
  call.setDeadline(600_000, "too long")
  assert.deepStrictEqual(deadlines(), [rest])
  letPass()
  assert.deepStrictEqual(
    aborts.map((reason) => reason?.message),
    ["response went on after its end"]
  )
  assert.deepStrictEqual(deadlines(), [])
})

it("when a deadline is set again, then it replaces the one before", () => {
  const { call, deadlines } = begin()
  call.setDeadline(600_000, "too long")
  assert.deepStrictEqual(deadlines(), [600_000])
})

it("when a call is over, then it has no deadline, whatever ended it", () => {
  const ends = {
    "its end": (call: UpstreamCall) => call.onResponseEnd(),
    "its end, after it was discarded": (call: UpstreamCall) => {
      call.finish()
      call.onResponseEnd()
    },
    "an error": (call: UpstreamCall, controller: Dispatcher.DispatchController) =>
      call.onResponseError(controller, new Error("gone")),
    "an abort": (call: UpstreamCall) => call.abort(new Error("gone")),
    "its caller": (call: UpstreamCall) => call.close()
  }
  for (const [name, end] of Object.entries(ends)) {
    const { call, controller, deadlines } = begin()
    end(call, controller)
    assert.deepStrictEqual(deadlines(), [], name)
    call.setDeadline(1000, "late")
    assert.deepStrictEqual(deadlines(), [], `${name}, then a deadline`)
  }
})

it("when its caller closes a call, then the request is aborted once, unless it is over or being discarded", () => {
  const open = begin()
  open.call.close()
  open.call.close()
  assert.deepStrictEqual(
    open.aborts.map((reason) => reason?.message),
    ["call closed"]
  )
  const ended = begin()
  ended.call.onResponseEnd()
  ended.call.close()
  const discarded = begin()
  discarded.call.finish()
  discarded.call.close()
  assert.deepStrictEqual([...ended.aborts, ...discarded.aborts], [])
})
