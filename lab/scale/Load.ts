/** Clients: many requests at once, and what became of each. */
import { Effect, Schedule } from "effect"
import { Pool } from "undici"
import type { Key } from "./World.ts"

export interface Outcome {
  readonly number: number
  readonly key: Key
  /** 0: no whole answer */
  readonly status: number
  /** the error's type in a refusal */
  readonly type: string
  /** performance.now() */
  readonly began: number
  readonly ended: number
}

export interface Call {
  readonly key: Key
  readonly model: "short" | "slow"
  readonly stream: boolean
  readonly maxTokens?: number
  readonly text?: string
}

let serial = 0

const pools = new Map<string, Pool>()
export const poolOf = (url: string, options: Pool.Options = { connections: 256 }): Pool => {
  const known = pools.get(url)
  if (known !== undefined) return known
  const pool = new Pool(url, options)
  pools.set(url, pool)
  return pool
}

export const closePools = Effect.promise(async () => {
  await Promise.all([...pools.values()].map((pool) => pool.destroy()))
  pools.clear()
})

/** The error's type in a refusal. */
export const typeIn = (text: string): string => /"type":"(\w+)"/.exec(text)?.[1] ?? "?"

/** One request, its answer read to the end. */
export const send = (url: string, call: Call): Effect.Effect<Outcome> =>
  Effect.promise(async () => {
    const number = ++serial
    const began = performance.now()
    const outcome = (status: number, type: string): Outcome => ({
      number,
      key: call.key,
      status,
      type,
      began,
      ended: performance.now()
    })
    try {
      const { statusCode, body } = await poolOf(url).request({
        method: "POST",
        path: "/api/chat",
        headers: {
          authorization: `Bearer ${call.key.secret}`,
          "content-type": "application/json",
          "x-request-id": String(number)
        },
        body: JSON.stringify({
          model: call.model,
          stream: call.stream,
          messages: [{ role: "user", content: `${call.key.name}#${number}#${call.text ?? "Hello"}` }],
          ...(call.maxTokens === undefined ? {} : { options: { num_predict: call.maxTokens } })
        })
      })
      const text = await body.text()
      return outcome(statusCode, statusCode === 200 ? "" : typeIn(text))
    } catch {
      // A replica that was killed takes its connections along: that is what is tried.
      return outcome(0, "lost")
    }
  })

/** Shows a replica keys it has not seen yet, one after the other, until it knows them. */
export const warm = (url: string, keys: ReadonlyArray<Key>) =>
  Effect.forEach(
    keys,
    ({ secret }) =>
      Effect.tryPromise(async () => {
        const headers = { authorization: `Bearer ${secret}` }
        const { body, statusCode } = await poolOf(url).request({
          method: "GET",
          path: "/api/version",
          headers
        })
        await body.dump()
        if (statusCode !== 200) throw new Error(`not known yet: ${statusCode}`)
      }).pipe(Effect.retry({ times: 20, schedule: Schedule.spaced("500 millis") }), Effect.orDie),
    { discard: true }
  )

/** Runs `total` calls, at most `parallel` at once. */
export const sendAll = (
  total: number,
  parallel: number,
  make: (i: number) => { readonly url: string; readonly call: Call }
): Effect.Effect<ReadonlyArray<Outcome>> =>
  Effect.forEach(
    Array.from({ length: total }, (_, i) => i),
    (i) => Effect.suspend(() => send(make(i).url, make(i).call)),
    { concurrency: parallel }
  )
