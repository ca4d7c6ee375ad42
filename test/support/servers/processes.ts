/** Freezing and killing whole servers: a signal to a process and to all its children. */
import { readdirSync, readFileSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Data, Effect } from "effect"

/** Shared by all processes of all tests: half of a short command's time is compiling. */
export const compileCache = path.join(tmpdir(), "tollgate-test-compile-cache")

/** A server of the tests did not come up. */
export class TestServerFailed extends Data.TaggedError("TestServerFailed")<{
  readonly detail: string
  readonly cause?: unknown
}> {
  override get message(): string {
    return this.detail
  }
}

const parentOf = (pid: string): number | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1])
  } catch {
    return undefined // it ended while we looked
  }
}

export const childrenOf = (pid: number): ReadonlyArray<number> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && parentOf(name) === pid)
    .map(Number)

const signal = (pid: number, name: NodeJS.Signals): boolean => {
  try {
    return process.kill(pid, name)
  } catch {
    return false // gone already, which is what any of these signals is for
  }
}

/** Sends `name` to the process first, so that it cannot start more children, then to its children. */
export const signalTree = (pid: number, name: NodeJS.Signals): Effect.Effect<void> =>
  Effect.sync(() => {
    const children = childrenOf(pid)
    signal(pid, name)
    for (const child of new Set([...children, ...childrenOf(pid)])) signal(child, name)
  })

/**
 * A TCP port of 127.0.0.1 that nobody listens on right now. The system gives none of these to a connection, so until a server takes
 * the port only another test could, and what a test before it called reaches no other server.
 */
export const freePort: Effect.Effect<number, TestServerFailed> = Effect.callback<number, unknown>(
  (resume) => {
    const port = 10_000 + Math.floor(Math.random() * 20_000)
    const server = createServer().once("error", (cause) => resume(Effect.fail(cause)))
    server.listen(port, "127.0.0.1", () => server.close(() => resume(Effect.succeed(port))))
  }
).pipe(
  Effect.retry({ times: 20 }),
  Effect.mapError((cause) => new TestServerFailed({ detail: "no free port", cause }))
)
