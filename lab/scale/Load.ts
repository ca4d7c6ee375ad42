/** Connections of clients, and what a refusal says. */
import { Effect } from "effect"
import { Pool } from "undici"

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
