/**
 * Finds a real redis-server: on PATH, else from Debian's archive. Root installs the package; anybody else unpacks
 * it, with the libraries it needs, into `node_modules/.cache`. There is no third way: without one the run fails.
 */
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync } from "node:fs"
import * as path from "node:path"

export interface RedisBinary {
  readonly command: string
  /** LD_LIBRARY_PATH it needs; empty for an installed one */
  readonly libraries: string
}

const run = (command: string, args: ReadonlyArray<string>, cwd?: string) => {
  const done = spawnSync(command, args, { encoding: "utf8", timeout: 120_000, ...(cwd ? { cwd } : {}) })
  return { ok: done.status === 0, text: `${done.stdout ?? ""}${done.stderr ?? ""}${done.error ?? ""}` }
}

const works = ({ command, libraries }: RedisBinary): boolean =>
  spawnSync(command, ["--version"], { env: { ...process.env, LD_LIBRARY_PATH: libraries }, stdio: "ignore" })
    .status === 0

const cache = path.resolve(import.meta.dirname, "../../../node_modules/.cache/redis")

const unpacked = (): RedisBinary => {
  const lib = path.join(cache, "root/usr/lib")
  const folders = existsSync(lib)
    ? readdirSync(lib, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => path.join(lib, entry.name))
    : []
  return { command: path.join(cache, "root/usr/bin/redis-server"), libraries: [lib, ...folders].join(":") }
}

// redis-server is a link into redis-tools; the rest are libraries a bare Debian lacks.
const packages = [
  "redis-server",
  "redis-tools",
  "libjemalloc2",
  "liblzf1",
  "libatomic1",
  "liblua5.1-0",
  "lua-cjson",
  "lua-bitop"
]

const unpack = (): string => {
  const state = path.join(cache, "apt")
  for (const folder of ["lists/partial", "cache/archives/partial", "debs"])
    mkdirSync(path.join(state, folder), { recursive: true })
  const debs = path.join(state, "debs")
  const own = ["-o", `Dir::State::lists=${state}/lists`, "-o", `Dir::Cache=${state}/cache`]
  // One by one: not every release has all of them, and the check at the end is whether the server starts.
  const fetch = (options: ReadonlyArray<string>) =>
    packages.map((name) => run("apt-get", [...options, "download", name], debs).text).join("")
  let log = fetch([])
  if (!readdirSync(debs).some((name) => name.startsWith("redis-tools"))) {
    log += run("apt-get", [...own, "update"]).text + fetch(own)
  }
  for (const name of readdirSync(debs))
    log += run("dpkg-deb", ["-x", path.join(debs, name), path.join(cache, "root")]).text
  return log
}

export const findRedis = (): RedisBinary => {
  const installed: RedisBinary = { command: "redis-server", libraries: "" }
  if (works(installed)) return installed
  if (works(unpacked())) return unpacked()
  let log = ""
  if (process.getuid?.() === 0) {
    const install = ["install", "-y", "--no-install-recommends", "redis-server"]
    // The tests start their own: the package must not start a service on 6379.
    const quiet = () =>
      spawnSync("apt-get", install, {
        encoding: "utf8",
        timeout: 180_000,
        env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" }
      }).stderr
    log = quiet()
    if (!works(installed)) log += run("apt-get", ["update"]).text + quiet()
    if (works(installed)) return installed
  } else {
    log = unpack()
    if (works(unpacked())) return unpacked()
  }
  throw new Error(
    `the tests need a real redis-server: none on PATH, and Debian's package could not be fetched.\n` +
      `Install redis-server, or set TEST_REDIS_URL. What apt said:\n${log.slice(-2000)}`
  )
}
