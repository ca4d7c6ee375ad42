/** The image without an engine: what the Dockerfile says, and processes as a container would run them. */
import { type ChildProcess, spawn } from "node:child_process"
import { readFileSync, statSync } from "node:fs"
import * as path from "node:path"
import { Effect, Schema } from "effect"

const words = Schema.decodeUnknownSync(Schema.fromJsonString(Schema.NonEmptyArray(Schema.String)))

export const readImage = (folder: string) => {
  const dockerfile = readFileSync(path.join(folder, "Dockerfile"), "utf8").replaceAll("\\\n", " ")
  const line = (start: RegExp): string =>
    new RegExp(`^(?:${start.source})\\s+(.*)$`, "m").exec(dockerfile)?.[1] ?? ""
  return {
    start: words(line(/CMD/)),
    health: words(line(/HEALTHCHECK .*CMD/)),
    stopSignal: line(/STOPSIGNAL/),
    user: Number(line(/USER/).split(":")[0]),
    env: Object.fromEntries(
      line(/ENV/)
        .split(" ")
        .map((pair) => pair.split("="))
    ),
    /** installs the packages, in a folder with package.json and its lock */
    install: line(/RUN/),
    /** the same with the packages for development */
    installAll: line(/RUN(?= npm ci --ignore-scripts)/),
    /** bundles the gateway, in a folder with the packages for development and what is copied */
    build: line(/RUN(?= node )/),
    copied: [...new Set([...dockerfile.matchAll(/^COPY (\w+) \1$/gm)].map((match) => match[1] ?? ""))]
  }
}

export type Image = ReturnType<typeof readImage>

/** Whether others may walk down to here: a checkout in root's home is nobody else's to read. */
const isOpen = (folder: string): boolean =>
  (statSync(folder).mode & 0o001) !== 0 && (folder === "/" || isOpen(path.dirname(folder)))

/** Only root can become somebody else; then every file above is read-only for the process. */
export const userOf = ({ user }: Image, folder: string) =>
  process.getuid?.() === 0 && isOpen(folder) ? { uid: user, gid: user } : {}

export type Variables = Readonly<Record<string, string>>

const environment = ({ env }: Image, folder: string, more: Variables) => ({
  ...env,
  PATH: [path.dirname(process.execPath), path.join(folder, "bin"), "/usr/bin", "/bin"].join(":"),
  ...more
})

export const exitOf = (child: ChildProcess) =>
  Effect.callback<number | null>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.succeed(child.exitCode))
    child.once("exit", (code) => resume(Effect.succeed(code)))
  })

/** Starts a command in `folder`, which has what the image has under /app; killed with its scope. */
export const launch = (image: Image, folder: string, command: ReadonlyArray<string>, env: Variables) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(command[0] ?? "", command.slice(1), {
        cwd: folder,
        env: environment(image, folder, env),
        stdio: ["ignore", "pipe", "pipe"],
        ...userOf(image, folder)
      })
      const said = { out: "", err: "" }
      child.stdout.setEncoding("utf8").on("data", (text: string) => (said.out += text))
      child.stderr.setEncoding("utf8").on("data", (text: string) => (said.err += text))
      return { child, said }
    }),
    ({ child }) => Effect.sync(() => void child.kill("SIGKILL"))
  )

export const run = (image: Image, folder: string, command: ReadonlyArray<string>, env: Variables) =>
  Effect.scoped(
    Effect.flatMap(launch(image, folder, command, env), ({ child, said }) =>
      Effect.map(exitOf(child), (code) => ({ code, ...said }))
    )
  )
