/** How much, from which seed, and what becomes of a failure: a file in `corpus` that is a test from then on. */
import { createHash } from "node:crypto"
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import * as path from "node:path"

const corpus = path.join(import.meta.dirname, "corpus")

/** `FUZZ=full` for the long run, which starts from another seed every time; the suite always does the same. */
export const full = process.env["FUZZ"] === "full"
export const seed = Number(process.env["FUZZ_SEED"] ?? (full ? Date.now() % 2 ** 32 : 20_260_821))

export const tell = (what: string): void => void process.stdout.write(`fuzz: ${what}, seed ${seed}\n`)

/** Keeps `bytes` as `<target>.<digest>`; answers the file's name. */
export const keep = (target: string, bytes: Uint8Array): string => {
  const name = `${target}.${createHash("sha256").update(bytes).digest("hex").slice(0, 12)}`
  writeFileSync(path.join(corpus, name), bytes)
  return name
}

export interface Kept {
  readonly target: string
  readonly name: string
  readonly bytes: Buffer
}

/** What earlier runs found, and what was worth keeping besides. */
export const kept: ReadonlyArray<Kept> = readdirSync(corpus)
  .filter((name) => !name.startsWith("."))
  .map((name) => ({
    target: name.slice(0, name.indexOf(".")),
    name,
    bytes: readFileSync(path.join(corpus, name))
  }))
