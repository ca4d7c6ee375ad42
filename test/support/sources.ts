/** The texts of the project, for tests of what they say. */
import { globSync, readFileSync } from "node:fs"
import * as path from "node:path"

export const root = path.resolve(import.meta.dirname, "../..")

export const textOf = (file: string): string => readFileSync(path.join(root, file), "utf8")

/** The code of a file: comments are left out. */
export const codeOf = (file: string): string =>
  textOf(file).replaceAll(/\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$/gm, "")

/** The files of TypeScript and JavaScript in some folders. */
export const sourcesIn = (...folders: ReadonlyArray<string>): ReadonlyArray<string> =>
  globSync(
    folders.map((folder) => `${folder}/**/*.{ts,js}`),
    { cwd: root }
  ).toSorted()

/** How often `pattern` stands in the code of each file, where it does at all. */
export const usesOf = (files: ReadonlyArray<string>, pattern: RegExp): Readonly<Record<string, number>> =>
  Object.fromEntries(
    files
      .map((file) => [file, [...codeOf(file).matchAll(new RegExp(pattern, "g"))].length] as const)
      .filter(([, uses]) => uses > 0)
  )
