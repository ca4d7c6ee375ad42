/**
 * What the operations guide says for one machine, without an engine: its two lines that make `.env` are typed, `docker compose up`
 * is the image, the service `migrate` to its end and the service `gateway` until its health check passes, with the
 * environment of docker-compose.yml, and then the guide's commands in the gateway's container.
 *
 * *Details* Ports and the addresses of the three servers are those of loopback; everything else is what the file says.
 */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { Effect, Schedule, Schema } from "effect"
import { parse } from "yaml"
import { CheckoutFailed, clone } from "../../test/support/Checkout.ts"
import type { Variables } from "../../test/support/Image.ts"
import { blocks, lines, readPaper } from "../../test/support/Paper.ts"
import { freePort } from "../../test/support/servers/processes.ts"
import { ask, buildImage, makeServers } from "./containers.ts"
import { timed, type } from "./steps.ts"

const Service = Schema.Struct({
  command: Schema.optionalKey(Schema.Array(Schema.String)),
  environment: Schema.Record(Schema.String, Schema.Union([Schema.String, Schema.Finite]))
})
const File = Schema.Struct({ services: Schema.Struct({ migrate: Service, gateway: Service }) })

/** The guide's block for one machine: what makes `.env`, and what is typed in the gateway's container. */
const guide = () => {
  const block = blocks(readPaper("docs/deploy.md"), "sh").find((text) => text.includes("docker compose up"))
  const all = lines(block ?? "")
  const inside = "docker compose exec gateway "
  return {
    prepare: all.filter((line) => !line.startsWith("docker")),
    inside: all.filter((line) => line.startsWith(inside)).map((line) => line.slice(inside.length))
  }
}

const readEnvFile = (file: string): Variables =>
  Object.fromEntries(
    [...readFileSync(file, "utf8").matchAll(/^([A-Z_]+)=(.*)$/gm)].map(([, name = "", value = ""]) => [
      name,
      value
    ])
  )

/** `${NAME}`, `${NAME:-default}` and `${NAME:?message}`, as compose reads them. */
const interpolate = (text: string, variables: Variables): string =>
  text.replaceAll(/\$\{([A-Z_]+)(?::([-?])([^}]*))?\}/g, (_, name: string, kind = "", rest = "") => {
    const value = variables[name] ?? ""
    if (value !== "") return value
    if (kind === "?") throw new Error(`${name}: ${rest}`)
    return kind === "-" ? rest : ""
  })

export const throughCompose = Effect.gen(function* () {
  const commands = guide()
  const folder = yield* timed("git clone", clone)
  yield* timed(
    ".env with two passwords",
    Effect.forEach(commands.prepare, (line) => type(folder, line))
  )
  const variables = readEnvFile(path.join(folder, ".env"))
  const servers = yield* timed(
    "(servers of this test)",
    makeServers(["--requirepass", variables["REDIS_PASSWORD"] ?? ""])
  )
  const image = yield* timed("docker build: the Dockerfile's steps, nothing cached", buildImage(folder))
  const text = readFileSync(path.join(folder, "docker-compose.yml"), "utf8")
  const file = yield* Schema.decodeUnknownEffect(File)(parse(text, { merge: true }))
  const port = yield* freePort
  const environmentOf = ({ environment }: typeof Service.Type): Variables => ({
    ...Object.fromEntries(
      Object.entries(environment).map(([name, value]) => [
        name,
        interpolate(String(value), variables)
          .replace("@postgres:5432", `@${servers.postgres}`)
          .replace("@redis:6379", `@${servers.redis}`)
          .replace("//ollama:11434", `//${servers.model}`)
      ])
    ),
    HOST: "127.0.0.1",
    PORT: String(port)
  })

  const { gateway, migrate } = file.services
  yield* timed("the service migrate", image.run(migrate.command ?? [], environmentOf(migrate)))
  const env = environmentOf(gateway)
  yield* timed(
    "the service gateway, until it is healthy",
    Effect.gen(function* () {
      yield* image.start(gateway.command ?? image.image.start, env)
      yield* image.run(image.image.health, env).pipe(
        Effect.retry({ schedule: Schedule.spaced("1 second"), times: 30 }),
        Effect.mapError(() => new CheckoutFailed({ message: "the gateway is not healthy" }))
      )
    })
  )
  const printed = yield* timed(
    commands.inside.map((line) => line.split(" ", 2).join(" ")).join(", "),
    Effect.forEach(commands.inside, (line) => image.run(line.split(" "), env))
  )
  yield* timed("the first answer, whole", ask(`http://127.0.0.1:${port}`, printed.at(-1)?.trim() ?? ""))
})
