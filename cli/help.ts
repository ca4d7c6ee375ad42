/** What the help of a command says, in 80 columns, and `tollgate help <command>`. */
import { CliConfig, CliOutput, Command, GlobalFlag } from "effect/cli"
import { Layer } from "effect"
import { broken } from "./terminal.ts"

const width = 80

/** Examples stay as they are typed. */
const example = /^ {2}(?:#|\S*=?\$?\(?tollgate |[A-Z_]+=)/

/** `  --flag value    What it does`: the text goes on below itself. Other lines go on at their indent. */
const fitLine = (line: string): ReadonlyArray<string> => {
  if (CliOutput.displayWidth(line) <= width || example.test(line)) return [line]
  const [, before = "", text = ""] = /^( {2}\S+(?: \S+)* {2,}| *)(\S.*)$/.exec(line) ?? []
  const [first = "", ...rest] = broken(text, width - before.length)
  return [before + first, ...rest.map((part) => " ".repeat(before.length) + part)]
}

const formatter = CliOutput.defaultFormatter({ globalFlags: "summary" })

/** The formatter, and the global flags that an operator needs: `LOG_LEVEL` sets the level of the log. */
export const layerHelp = Layer.merge(
  CliOutput.layer({
    ...formatter,
    formatHelpDoc: (doc) => formatter.formatHelpDoc(doc).split("\n").flatMap(fitLine).join("\n")
  }),
  CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] })
)

/** `help` as `--help`, and `help create-key` as `create-key --help`. What is no command has no help: it is refused as without it. */
export const withoutHelpCommand = (
  args: ReadonlyArray<string>,
  commands: ReadonlyArray<string>
): ReadonlyArray<string> => {
  const asked = args[0] === "help" ? [...args.slice(1, 2), "--help"] : args
  const name = asked.find((arg) => !arg.startsWith("-"))
  return name === undefined || commands.includes(name)
    ? asked
    : asked.filter((arg) => arg !== "--help" && arg !== "-h")
}

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
