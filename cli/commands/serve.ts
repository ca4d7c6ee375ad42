import type { Effect } from "effect"
import { Command } from "effect/cli"

/** `serve` runs until the process gets a signal. */
export const makeServe = <E>(serve: Effect.Effect<void, E>) =>
  Command.make("serve", {}, () => serve).pipe(
    Command.withDescription("Run the gateway"),
    Command.withExamples([{ command: "tollgate serve" }])
  )
