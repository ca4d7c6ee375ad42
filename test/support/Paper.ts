/** The commands in a Markdown file: what a reader would type, and what they are told to expect. */
import { readFileSync } from "node:fs"
import * as path from "node:path"

const root = path.resolve(import.meta.dirname, "../..")

export interface Step {
  /** after the `$`, continuation lines included */
  readonly command: string
  /** the lines below it, up to the next command */
  readonly output: string
}

export const readPaper = (file: string): string => readFileSync(path.join(root, file), "utf8")

/** The fenced blocks of one language. */
export const blocks = (text: string, language: string): ReadonlyArray<string> =>
  [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)]
    .filter((match) => match[1] === language)
    .map((match) => match[2] ?? "")

/** A transcript: `$ command`, then what it printed. */
export const steps = (block: string): ReadonlyArray<Step> =>
  block
    .split(/^\$ /m)
    .slice(1)
    .map((text) => {
      const [, command = "", output = ""] = /^((?:.*\\\n)*.*)\n?([\s\S]*)$/.exec(text) ?? []
      return { command, output: output.trimEnd() }
    })

/** The lines of a block of shell, without comments. */
export const lines = (block: string): ReadonlyArray<string> =>
  block
    .replaceAll(/\\\n\s*/g, "")
    .split("\n")
    .map((line) => line.replace(/\s+#.*$/, "").trim())
    .filter((line) => line !== "" && !line.startsWith("#"))

/** Code within a sentence that is a command: it begins with the name of a program. */
export const inlineCommands = (text: string): ReadonlyArray<string> =>
  [...text.replaceAll(/^```[\s\S]*?^```$/gm, "").matchAll(/`([^`\n]+)`/g)]
    .map((match) => match[1] ?? "")
    .filter((code) =>
      /^(?:npm (?!packages)|npx |tollgate |docker |kubectl |node |SELECT |\w+=\S+ np)/.test(code)
    )
