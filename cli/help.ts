/** Help that fits a terminal of 80 columns, and `tollgate help <command>`. */
import { CliConfig, CliOutput, GlobalFlag } from "effect/cli"
import { Layer } from "effect"
import { broken, padded } from "./terminal.ts"

const width = 80
/** The longest left column; a longer entry has its text on the next line. */
const maxLeft = 24

interface Entry {
  readonly left: string
  readonly text: string
}

/** `  --flag value    What it does`: two blanks, an entry, at least two blanks, its text. */
const entryOf = (line: string): Entry | undefined => {
  const [, left, text] = /^ {2}(\S+(?: \S+)*) {2,}(\S.*)$/.exec(line) ?? []
  return left === undefined || text === undefined ? undefined : { left, text }
}

const renderEntries = (entries: ReadonlyArray<Entry>): ReadonlyArray<string> => {
  const left = Math.min(maxLeft, Math.max(...entries.map((entry) => CliOutput.displayWidth(entry.left))))
  const indent = left + 4
  return entries.flatMap((entry) => {
    const text = broken(entry.text, width - indent)
    const [first = "", ...rest] = text
    const further = (lines: ReadonlyArray<string>) => lines.map((line) => " ".repeat(indent) + line)
    return CliOutput.displayWidth(entry.left) > left
      ? [`  ${entry.left}`, ...further(text)]
      : [`  ${padded(entry.left, left)}  ${first}`, ...further(rest)]
  })
}

/** Breaks texts at 80 columns, and aligns the entries of each section. Examples stay as they are typed. */
export const fitHelp = (help: string): string => {
  const lines: Array<string> = []
  let entries: Array<Entry> = []
  const flush = () => {
    if (entries.length > 0) lines.push(...renderEntries(entries))
    entries = []
  }
  for (const line of help.split("\n")) {
    const entry = entryOf(line)
    if (entry !== undefined) {
      entries.push(entry)
      continue
    }
    flush()
    const indent = /^ */.exec(line)?.[0] ?? ""
    if (CliOutput.displayWidth(line) <= width || /^ {2}(?:#|\S*=?\$?\(?tollgate |[A-Z_]+=)/.test(line)) {
      lines.push(line)
    } else lines.push(...broken(line.trim(), width - indent.length).map((part) => indent + part))
  }
  flush()
  return lines.join("\n")
}

const formatter = CliOutput.defaultFormatter({ globalFlags: "summary" })

/** The formatter, and the global flags that an operator needs: `LOG_LEVEL` sets the level of the log. */
export const layerHelp = Layer.merge(
  CliOutput.layer({ ...formatter, formatHelpDoc: (doc) => fitHelp(formatter.formatHelpDoc(doc)) }),
  CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] })
)

/** `help` as `--help`, and `help create-key` as `create-key --help`. */
export const withoutHelpCommand = (args: ReadonlyArray<string>): ReadonlyArray<string> =>
  args[0] === "help" ? [...args.slice(1, 2), "--help"] : args
