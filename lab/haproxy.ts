/** The balancer of deploy/haproxy: on PATH, else from Debian's archive. */
import { spawn, spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { Data, Effect } from "effect"

export class NoBalancer extends Data.TaggedError("NoBalancer")<{ readonly message: string }> {}

const haproxy: Effect.Effect<string, NoBalancer> = Effect.suspend(() => {
  const works = () => spawnSync("haproxy", ["-v"], { stdio: "ignore" }).status === 0
  if (!works() && process.getuid?.() === 0) {
    spawnSync("apt-get", ["install", "-y", "--no-install-recommends", "haproxy"], {
      stdio: "ignore",
      timeout: 180_000,
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" }
    })
  }
  return works()
    ? Effect.succeed("haproxy")
    : Effect.fail(new NoBalancer({ message: "haproxy is needed: install it" }))
})

/** The shipped balancer on a port of loopback, before these two. */
export const balance = (port: number, [first, second]: readonly [string, string]) =>
  Effect.acquireRelease(
    Effect.map(haproxy, (command) =>
      spawn(command, ["-db", "-f", "deploy/haproxy/haproxy.cfg"], {
        cwd: fileURLToPath(new URL("..", import.meta.url)),
        env: {
          PATH: process.env["PATH"],
          BIND: `127.0.0.1:${port}`,
          GATEWAY_1: new URL(first).host,
          GATEWAY_2: new URL(second).host
        },
        stdio: ["ignore", "ignore", "inherit"]
      })
    ),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )
