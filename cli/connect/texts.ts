/** The files of a client as text: the environment as a script of the shell, and its settings. Works in a browser too. */
import type { Schema } from "effect"
import { shellWord } from "../shell.ts"
import type { Client, Facts, Settings } from "./Client.ts"

/** A value of the environment in the shell. `~` would stay one within quotes. */
const shellValue = (value: string): string =>
  value === "$TOLLGATE_KEY"
    ? '"$TOLLGATE_KEY"'
    : value.startsWith("~/")
      ? `"$HOME/${value.slice(2)}"`
      : shellWord(value)

/** The key comes from a file or from the environment, and is never part of what is printed. */
const script = (client: Client, facts: Facts, keyFile: string | undefined): string =>
  [
    keyFile === undefined
      ? ': "${TOLLGATE_KEY:?set it to the key of the gateway}"'
      : `TOLLGATE_KEY="$(cat ${shellValue(keyFile)})"`,
    "export TOLLGATE_KEY",
    ...Object.entries(client.environment?.(facts) ?? {}).map(
      ([name, value]) => `export ${name}=${shellValue(value)}`
    )
  ].join("\n") + "\n"

const scriptPath = (client: Client): string => `~/.config/tollgate/${client.name}.sh`

/** The script first. `keyFile`: an absolute path, or one in `~` */
export const filesOf = (client: Client, facts: Facts, keyFile?: string): ReadonlyArray<Settings> => [
  { path: scriptPath(client), content: script(client, facts, keyFile) },
  ...Object.entries(client.settings?.(facts) ?? {}).map(([path, content]) => ({ path, content }))
]

export const jsonText = (value: Schema.JsonObject): string => `${JSON.stringify(value, null, 2)}\n`

/** The text of a file that is not there yet. */
export const freshText = ({ content }: Settings): string =>
  typeof content === "string" ? content : jsonText(content)

/** What the user types. */
export const commandOf = (client: Client, facts: Facts): string =>
  [`. ${scriptPath(client)}`, ...(client.run === undefined ? [] : [client.run(facts)])].join(" && ")

/** All files, as text. */
export const printed = (client: Client, facts: Facts, keyFile?: string): string =>
  [
    ...filesOf(client, facts, keyFile).flatMap((file) => [`# ${file.path}`, freshText(file)]),
    `# then: ${commandOf(client, facts)}`
  ].join("\n")
