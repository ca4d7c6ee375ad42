/** The processes of an attack: whoever attacks, whoever pays, and what they print when they are done. */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import * as path from "node:path"
import { Data, Deferred, Effect, Fiber, Schema } from "effect"
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

/** Runs one of the scripts here to its end; its last line are its figures. `begun` is called at its first word. */
const script = <A>(
  schema: Schema.Decoder<A>,
  name: string,
  env: Env,
  niceness: number,
  begun: () => void = () => undefined
) =>
  Effect.callback<string>((resume) => {
    const child = launch(["nice", "-n", String(niceness), process.execPath, here(name)], env)
    let text = ""
    child.stdout?.once("data", begun).on("data", (piece: string) => (text += piece))
    child.on("close", () => resume(Effect.succeed(text.trimEnd().split("\n").at(-1) ?? "")))
    return Effect.sync(() => void child.kill("SIGKILL"))
  }).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Schema.fromJsonString(schema))),
    Effect.mapError(() => new ArenaFailed({ message: `${name} said nothing of use` }))
  )

/** What every attacker needs to be told; all else has a default. */
export type Plan = Pick<Order, "attack"> & Partial<Omit<Order, "attack" | "keys" | "url">>

const pace = { patience: 1 }

/** Every attack lasts so many times as long. */
export const setPatience = (times: number): void => void (pace.patience = times)

export const completed = (plan: Plan, url: string, keys: ReadonlyArray<Key>): Order => ({
  model: "short",
  path: "/api/chat",
  count: 8,
  rate: 100,
  body: "",
  stream: true,
  from: [],
  ...plan,
  seconds: (plan.seconds ?? 8) * pace.patience,
  url,
  keys: keys.map(({ secret }) => secret)
})

export type Met = typeof Numbers.Type

/** Attackers give way to those they attack, as if they had another machine. Ends a while after its time at the latest. */
export const attack = (order: Order, begun?: () => void): Effect.Effect<Met, ArenaFailed> =>
  script(Numbers, "attacker.ts", { ORDER: JSON.stringify(order) }, 5, begun).pipe(
    Effect.timeoutOrElse({
      duration: (order.seconds + 60) * 1000,
      orElse: () => Effect.fail(new ArenaFailed({ message: `${order.attack} did not end` }))
    })
  )

/** Done when the attack has begun: a process needs a moment to start. */
export const startAttack = Effect.fnUntraced(function* (order: Order) {
  const begun = yield* Deferred.make<void>()
  const attacking = yield* Effect.forkChild(
    attack(order, () => Deferred.doneUnsafe(begun, Effect.void)),
    { startImmediately: true }
  )
  yield* Effect.raceFirst(Deferred.await(begun), Effect.exit(Fiber.await(attacking)))
  return attacking
})

const Neighbour = Schema.Struct({
  requests: Schema.Finite,
  p50: Schema.Finite,
  p95: Schema.Finite,
  p99: Schema.Finite,
  most: Schema.Finite,
  statuses: Numbers
})
export type Neighbour = typeof Neighbour.Type

export const neighbour = (
  url: string,
  keys: ReadonlyArray<Key>,
  seconds: number,
  { path: requestPath = "/api/chat", pauseMs = 40 } = {}
) =>
  script(
    Neighbour,
    "neighbour.ts",
    {
      URL: url,
      KEYS: keys.map(({ secret }) => secret).join(","),
      SECONDS: String(seconds),
      PAUSE_MS: String(pauseMs),
      REQUEST_PATH: requestPath,
      ADDRESS: "127.0.0.9"
    },
    0
  )
