/** The balancer of deploy/haproxy: on PATH, else from Debian's archive. */
import { spawnSync } from "node:child_process"
import { Data, Effect } from "effect"

export class NoBalancer extends Data.TaggedError("NoBalancer")<{ readonly message: string }> {}

export const haproxy: Effect.Effect<string, NoBalancer> = Effect.suspend(() => {
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
