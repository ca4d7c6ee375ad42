/**
 * The model server of the soak: quick, honest about counts, with the hostile models of attackers beside its own, and it remembers
 * who came. A prompt begins with `<key>#<number>#`, so that what it saw can be compared with what was audited.
 */
import { Effect, type Scope } from "effect"
import { type Answer, hostile, line, streaming, tokensOf } from "../attacks/hostile.ts"
import { makeModelServer } from "../attacks/modelServer.ts"
import { listening } from "../../test/support/listening.ts"

export interface Backend {
  readonly url: string
  /** numbers of the requests it got; requests of attackers have none */
  readonly seen: Set<number>
  /** the most requests of a key it ever had at the same time */
  readonly most: Map<string, number>
  /** forgets who is there: their clients may be gone without its knowing */
  readonly forget: () => void
}

/** What a model can do is told honestly. */
const attackers = Object.fromEntries(Object.entries(hostile).filter(([name]) => !name.startsWith("shows-")))

export const makeBackend: Effect.Effect<Backend, never, Scope.Scope> = Effect.gen(function* () {
  const seen = new Set<number>()
  const most = new Map<string, number>()
  const now = new Map<string, number>()
  let age = 0
  const change = (key: string, by: number, of = age) => {
    if (of !== age) return
    const count = (now.get(key) ?? 0) + by
    now.set(key, count)
    most.set(key, Math.max(most.get(key) ?? 0, count))
  }
  /** So many frames, one every `gapMs`. */
  const honest =
    (frames: number, gapMs: number): Answer =>
    (asked, response) => {
      const [, text = "", key = "?", serial] =
        /"(?:content|prompt|input)":\[?"(([^#"]*)#(\d+)#[^"]*)"/.exec(asked.body) ?? []
      if (serial !== undefined) seen.add(Number(serial))
      // A little below the gateway's estimate.
      const prompt = tokensOf(text.length)
      if (asked.path === "/api/embed") {
        response.setHeader("content-type", "application/json")
        response.end(
          JSON.stringify({ model: asked.model, embeddings: [[0.5, 0.25]], prompt_eval_count: prompt })
        )
        return
      }
      const came = age
      change(key, 1)
      const count = Math.min(frames, asked.bound)
      let over = false
      const end = () => {
        if (over) return
        over = true
        change(key, -1, came)
      }
      const last = () => {
        end()
        const done_reason = count < frames ? "length" : "stop"
        const counts = { prompt_eval_count: prompt, eval_count: count }
        response.end(line(asked, "", { done: true, done_reason, ...counts }))
      }
      streaming(response)
      response.on("close", end)
      const word = line(asked, " word")
      if (gapMs === 0) {
        response.write(word.repeat(count))
        return last()
      }
      let sent = 0
      const timer = setInterval(() => {
        if (response.destroyed) return clearInterval(timer)
        sent += 1
        if (sent <= count) return void response.write(word)
        clearInterval(timer)
        return last()
      }, gapMs)
    }
  const models = { ...attackers, short: honest(3, 0), slow: honest(60, 20) }
  const url = yield* listening(makeModelServer(models))
  const forget = () => {
    age += 1
    now.clear()
  }
  return { url, seen, most, forget }
})
