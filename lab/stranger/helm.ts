/**
 * What the operations guide says for Kubernetes, without a cluster: the guide's values are rendered by the real helm, and what was
 * rendered is done by hand: the Secret by kubectl, the Job's command, the Deployment's container with its environment and
 * user, its probes as the kubelet asks them, and the guide's commands inside it.
 *
 * *Details* Ports and the addresses of the three servers are those of loopback; everything else is what was rendered.
 */
import { writeFileSync } from "node:fs"
import * as path from "node:path"
import { Effect, Schedule, Schema } from "effect"
import { parse, parseAllDocuments } from "yaml"
import { CheckoutFailed, clone } from "../../test/support/Checkout.ts"
import type { Variables } from "../../test/support/Image.ts"
import { blocks, lines, readPaper } from "../../test/support/Paper.ts"
import { freePort } from "../../test/support/servers/processes.ts"
import { ask, buildImage, makeServers } from "./containers.ts"
import { timed, type } from "./steps.ts"

const Probe = Schema.Struct({
  httpGet: Schema.Struct({ path: Schema.String, port: Schema.String }),
  periodSeconds: Schema.Finite,
  failureThreshold: Schema.Finite
})
const Named = Schema.Struct({ name: Schema.String })
const Container = Schema.Struct({
  command: Schema.optionalKey(Schema.Array(Schema.String)),
  ports: Schema.optionalKey(
    Schema.Array(Schema.Struct({ name: Schema.String, containerPort: Schema.Finite }))
  ),
  envFrom: Schema.Array(
    Schema.Struct({
      secretRef: Schema.optionalKey(Named),
      configMapRef: Schema.optionalKey(Named)
    })
  ),
  startupProbe: Schema.optionalKey(Probe),
  readinessProbe: Schema.optionalKey(Probe)
})
const Workload = Schema.Struct({
  kind: Schema.Literals(["Job", "Deployment"]),
  spec: Schema.Struct({
    template: Schema.Struct({ spec: Schema.Struct({ containers: Schema.NonEmptyArray(Container) }) })
  })
})
const ConfigMap = Schema.Struct({
  kind: Schema.Literal("ConfigMap"),
  metadata: Named,
  data: Schema.Record(Schema.String, Schema.String)
})
const Secret = Schema.Struct({ metadata: Named, data: Schema.Record(Schema.String, Schema.String) })

const isWorkload = Schema.is(Workload)
const isConfigMap = Schema.is(ConfigMap)

const broken = (message: string) => new CheckoutFailed({ message })

/** The commands of the guide's block that installs the chart, by what they do. */
const guide = () => {
  const block = blocks(readPaper("docs/deploy.md"), "sh").find((text) => text.includes("helm install"))
  const all = lines(block ?? "")
  const inside = "kubectl -n tollgate exec deploy/tollgate -- "
  return {
    create: all.filter((line) => /^kubectl .*\bcreate (?:namespace|secret)/.test(line)),
    install: all.filter((line) => line.startsWith("helm install")),
    inside: all.filter((line) => line.startsWith(inside)).map((line) => line.slice(inside.length))
  }
}

/** Without a cluster helm has to be told the version of one. */
const render = `${process.env["HELM"] ?? "helm"} template --kube-version 1.34.0`

/** A cluster waits as long as it takes. Five minutes are enough for servers that run. */
const patience = 300

/** The kubelet asks every `periodSeconds`, and gives up after `failureThreshold` times. */
const waitFor = ({ failureThreshold, httpGet, periodSeconds }: typeof Probe.Type, url: string) =>
  Effect.tryPromise(() => fetch(`${url}${httpGet.path}`)).pipe(
    Effect.filterOrFail(({ ok }) => ok),
    Effect.retry({
      schedule: Schedule.spaced(`${periodSeconds} seconds`),
      times: Math.min(failureThreshold, patience)
    }),
    Effect.mapError(() => broken(`the probe of ${httpGet.path} fails`))
  )

export const throughHelm = Effect.gen(function* () {
  const servers = yield* timed("(servers of this test)", makeServers())
  const commands = guide()
  const folder = yield* timed("git clone", clone)
  const image = yield* timed("docker build: the Dockerfile's steps, nothing cached", buildImage(folder))

  writeFileSync(
    path.join(folder, "urls.env"),
    `DATABASE_URL=${servers.databaseUrl}\nREDIS_URL=${servers.redisUrl}\n`
  )
  writeFileSync(path.join(folder, "values.yaml"), blocks(readPaper("docs/deploy.md"), "yaml")[0] ?? "")
  const dryRun = " --dry-run=client -o yaml"
  const created = yield* timed(
    "kubectl create namespace, and the Secret",
    Effect.forEach(commands.create, (line) => type(folder, line + dryRun))
  )
  const { data } = yield* Schema.decodeUnknownEffect(Secret)(parse(created.at(-1) ?? ""))
  const rendered = yield* timed(
    "helm renders the chart with the guide's values",
    Effect.forEach(commands.install, (line) => type(folder, line.replace("helm install", render)))
  )
  const objects: ReadonlyArray<unknown> = parseAllDocuments(rendered.join("")).map((one) => one.toJS())
  const maps = new Map(objects.filter(isConfigMap).map((map) => [map.metadata.name, map.data]))
  const containerOf = (kind: "Job" | "Deployment") =>
    Effect.mapError(
      Effect.fromNullishOr(
        objects.filter(isWorkload).find((one) => one.kind === kind)?.spec.template.spec.containers[0]
      ),
      () => broken(`no ${kind} was rendered`)
    )
  const secrets = Object.fromEntries(
    Object.entries(data).map(([name, value]) => [name, Buffer.from(value, "base64").toString()])
  )
  const port = yield* freePort
  const environmentOf = ({ envFrom }: typeof Container.Type): Variables => {
    const given = Object.assign(
      {},
      ...envFrom.map((from) => (from.secretRef ? secrets : maps.get(from.configMapRef?.name ?? "")))
    )
    return {
      ...given,
      ...("BACKEND_URL" in given ? { BACKEND_URL: `http://${servers.model}` } : {}),
      HOST: "127.0.0.1",
      PORT: String(port)
    }
  }

  const job = yield* containerOf("Job")
  yield* timed("the Job: tollgate migrate", image.run(job.command ?? [], environmentOf(job)))
  const gateway = yield* containerOf("Deployment")
  const env = environmentOf(gateway)
  const url = `http://127.0.0.1:${port}`
  const { startupProbe, readinessProbe } = gateway
  if (startupProbe === undefined || readinessProbe === undefined) return yield* broken("no probes")
  yield* timed(
    "the pod: started, and ready by its probes",
    Effect.gen(function* () {
      yield* image.start(gateway.command ?? image.image.start, env)
      yield* waitFor(startupProbe, url)
      yield* waitFor(readinessProbe, url)
    })
  )
  const printed = yield* timed(
    commands.inside.map((line) => line.split(" ", 2).join(" ")).join(", "),
    Effect.forEach(commands.inside, (line) => image.run(line.split(" "), env))
  )
  yield* timed("the first answer, whole", ask(url, printed.at(-1)?.trim() ?? ""))
})
