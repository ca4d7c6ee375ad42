/** What the help of a command says. */
import { Command } from "effect/cli"

/** An example is a command line, or a command line and what it does. */
export const described =
  (description: string, ...examples: ReadonlyArray<string | readonly [line: string, does: string]>) =>
  <const Name extends string, Input, ContextInput, E, R>(
    command: Command.Command<Name, Input, ContextInput, E, R>
  ) =>
    command.pipe(
      Command.withDescription(description),
      Command.withExamples(
        examples.map((example) =>
          typeof example === "string"
            ? { command: example }
            : { command: example[0], description: example[1] }
        )
      )
    )
