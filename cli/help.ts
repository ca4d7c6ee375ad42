/** Help that fits a terminal of 80 columns, and `tollgate help <command>`. */
import { CliConfig, CliOutput, GlobalFlag } from "effect/cli"
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

/** `help` as `--help`, and `help create-key` as `create-key --help`. */
export const withoutHelpCommand = (args: ReadonlyArray<string>): ReadonlyArray<string> =>
  args[0] === "help" ? [...args.slice(1, 2), "--help"] : args
