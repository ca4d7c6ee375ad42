// Finds the build of the sources as they are now. Plain JavaScript, so that the built program needs no type stripper: that
// alone takes 20 MB of memory.
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join, relative } from "node:path"

const root = join(import.meta.dirname, "..")

/** What a build is made of. Packages count by the lock file. */
const inputs = ["build", "cli", "migrations", "src"]

const filesIn = (folder) =>
  readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))

/** A digest of the contents and names of all inputs, so that another version is another build, whatever its times are. */
const digestOf = () => {
  const digest = createHash("sha256")
  const files = [join(root, "package.json"), join(root, "package-lock.json"), ...inputs.flatMap(filesIn)]
  for (const file of files.filter((file) => existsSync(file)).sort()) {
    digest
      .update(`${relative(root, file)}\0`)
      .update(readFileSync(file))
      .update("\0")
  }
  return digest.digest("hex").slice(0, 20)
}

/** The folder of the build of these sources. It exists when they were built. */
export const folderOfBuild = () => join(root, "bundle", digestOf())

const sources = { main: "src/main.ts", cli: "cli/main.ts" }

/**
 * The file that runs the gateway (`main`) or the commands (`cli`). It is built first when it is not there. When it cannot be
 * built, it is the source, and `tell` is given the reason.
 */
export const entry = (name, tell = () => undefined) => {
  const folder = folderOfBuild()
  if (!existsSync(folder)) {
    const { status, stderr } = spawnSync(process.execPath, [join(import.meta.dirname, "build.ts")], {
      encoding: "utf8"
    })
    if (status !== 0)
      tell((stderr ?? "").split("\n").find((line) => line.includes("Error")) ?? `exit code ${status}`)
  }
  const built = join(folder, `${name}.js`)
  return existsSync(built) ? built : join(root, sources[name])
}
