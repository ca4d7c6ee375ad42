/** The processes of an attack: whoever attacks, whoever pays, and what they print when they are done. */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import * as path from "node:path"
import { Data, Effect, Schema } from "effect"
import type { Order } from "./attackers/sockets.ts"

export class ArenaFailed extends Data.TaggedError("ArenaFailed")<{ readonly message: string }> {}

export type Env = Readonly<Record<string, string>>

export const here = (name: string) => path.join(import.meta.dirname, name)

export const launch = (command: ReadonlyArray<string>, env: Env, cwd = process.cwd()): ChildProcess => {
  const [program = "", ...words] = command
  const child = spawn(program, words, {
    cwd,
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], ...env },
    stdio: ["ignore", "pipe", "inherit"]
  })
  child.stdout?.setEncoding("utf8")
  return child
}

/** Ends with its scope. */
export const kept = (command: ReadonlyArray<string>, env: Env, cwd?: string) =>
  Effect.acquireRelease(
    Effect.sync(() => launch(command, env, cwd)),
    (child) =>
      Effect.promise(async () => {
        if (child.exitCode !== null || child.signalCode !== null) return
        const gone = once(child, "exit")
        child.kill("SIGKILL")
        await gone
      })
  )

export interface Key {
  readonly secret: string
  readonly prefix: string
}

const Numbers = Schema.Record(Schema.String, Schema.Finite)

/** Runs one of the scripts here to its end, at a lower priority than those it attacks; its figures. */
const script = <A>(schema: Schema.Decoder<A>, name: string, env: Env, niceness: number) =>
  Effect.callback<string>((resume) => {
    const child = launch(["nice", "-n", String(niceness), process.execPath, here(name)], env)
    let text = ""
    child.stdout?.on("data", (piece: string) => (text += piece))
    child.on("close", () => resume(Effect.succeed(text)))
    return Effect.sync(() => void child.kill("SIGKILL"))
  }).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Schema.fromJsonString(schema))),
    Effect.mapError(() => new ArenaFailed({ message: `${name} said nothing of use` }))
  )

/** What every attacker needs to be told; all else has a default. */
export type Plan = Pick<Order, "attack"> & Partial<Omit<Order, "attack" | "keys" | "url">>

export const completed = (plan: Plan, url: string, keys: ReadonlyArray<Key>): Order => ({
  seconds: 8,
  model: "short",
  path: "/api/chat",
  count: 8,
  rate: 100,
  body: "",
  stream: true,
  from: [],
  ...plan,
  url,
  keys: keys.map(({ secret }) => secret)
})

/** Ends by itself, a while after its time at the latest. */
export const attack = (order: Order): Effect.Effect<typeof Numbers.Type, ArenaFailed> =>
  script(Numbers, "attacker.ts", { ORDER: JSON.stringify(order) }, 10).pipe(
    Effect.timeoutOrElse({
      duration: (order.seconds + 60) * 1000,
      orElse: () => Effect.fail(new ArenaFailed({ message: `${order.attack} did not end` }))
    })
  )

const Neighbour = Schema.Struct({
  requests: Schema.Finite,
  p50: Schema.Finite,
  p99: Schema.Finite,
  most: Schema.Finite,
  statuses: Numbers
})
export type Neighbour = typeof Neighbour.Type

export const neighbour = (url: string, keys: ReadonlyArray<Key>, seconds: number, pauseMs = 40) =>
  script(
    Neighbour,
    "neighbour.ts",
    {
      URL: url,
      KEYS: keys.map(({ secret }) => secret).join(","),
      SECONDS: String(seconds),
      PAUSE_MS: String(pauseMs),
      ADDRESS: "127.0.0.9"
    },
    0
  )
