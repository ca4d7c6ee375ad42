/**
 * The floor, and the least that a gateway must do which keeps what Tollgate keeps: one row before the call and one count, at
 * the same time, and after it the row's end, on the disk before the answer ends, and one count. There are no keys, limits,
 * budgets or tokens. It uses the clients of the stores that Tollgate uses, and writes the rows that wait as one statement.
 */
import { randomUUID } from "node:crypto"
import * as PgClient from "@effect/sql-pg/PgClient"
import { ManagedRuntime, Redacted } from "effect"
import { Redis } from "ioredis"
import { servePipe } from "./pipe.ts"

/** As long as a row of an intent is. */
const text = "x".repeat(300)

const runtime = ManagedRuntime.make(
  PgClient.layer({ url: Redacted.make(process.env["DATABASE_URL"] ?? ""), maxConnections: 10 })
)
const pg = await runtime.runPromise(PgClient.PgClient)
await runtime.runPromise(
  pg`CREATE TABLE IF NOT EXISTS floor_rows (id uuid PRIMARY KEY, before text NOT NULL, after text)`
)
const redis = new Redis(process.env["REDIS_URL"] ?? "", { enableAutoPipelining: true })

interface Waiting {
  readonly id: string
  readonly done: () => void
  readonly fail: () => void
}

/** Writes a row. Rows that come while a statement is under way wait for the next one. */
const makeWriter = (statement: string): ((row: Waiting) => void) => {
  let waiting: Array<Waiting> = []
  let busy = false
  const send = (): void => {
    const rows = waiting
    waiting = []
    busy = rows.length > 0
    if (!busy) return
    const ids = `{${rows.map(({ id }) => id).join(",")}}`
    runtime.runCallback(pg.unsafe(statement, [ids, text]), {
      onExit: (exit) => {
        for (const { done, fail } of rows) (exit._tag === "Success" ? done : fail)()
        send()
      }
    })
  }
  return (row) => {
    waiting.push(row)
    if (busy) return
    busy = true
    queueMicrotask(send)
  }
}

const open = makeWriter(
  "INSERT INTO floor_rows (id, before) SELECT id, $2 FROM set_config('synchronous_commit', 'off', true), unnest($1::uuid[]) AS id"
)
const close = makeWriter(
  "UPDATE floor_rows SET after = $2 FROM unnest($1::uuid[]) AS r(id) WHERE floor_rows.id = r.id"
)

/** Calls `next` when the row is written and the count is made, which happen at the same time. */
const both = (
  write: (row: Waiting) => void,
  count: () => Promise<number>,
  id: string,
  next: () => void,
  fail: () => void
): void => {
  let left = 2
  const done = () => void (--left === 0 && next())
  write({ id, done, fail })
  count().then(done, fail)
}

servePipe({
  request: (forward, fail) => {
    const id = randomUUID()
    both(
      open,
      () => redis.incr("floor"),
      id,
      () => forward((end) => both(close, () => redis.decr("floor"), id, end, fail)),
      fail
    )
  }
})
