/** What the help of a command says, and `tollgate help <command>`. */
import { CliConfig, CliOutput, Command, GlobalFlag } from "effect/cli"
import { Layer } from "effect"

/** The formatter, and the global flags that an operator needs: `LOG_LEVEL` sets the level of the log. */
export const layerHelp = Layer.merge(
  CliOutput.layer(CliOutput.defaultFormatter({ globalFlags: "summary" })),
  CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] })
)

/** `help` as `--help`, and `help create-key` as `create-key --help`. */
export const withoutHelpCommand = (args: ReadonlyArray<string>): ReadonlyArray<string> =>
  args[0] === "help" ? [...args.slice(1, 2), "--help"] : args

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
