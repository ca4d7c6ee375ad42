/** The deployment files agree with the code and with each other; `npm run lint:deploy` holds them to their schemas. */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { table } from "../../src/Settings.ts"
import { blocks } from "../support/Paper.ts"
import { chart, hashes, recordFile } from "../../deploy/tools/manifests.ts"

const root = path.resolve(import.meta.dirname, "../..")
const read = (file: string) => readFileSync(path.join(root, file), "utf8")
const compose = read("docker-compose.yml")
const manifests = readdirSync(path.join(root, "deploy/kubernetes"))
  .filter((name) => name.endsWith(".yaml"))
  .map((name) => ({ name, text: read(`deploy/kubernetes/${name}`) }))
const manifest = (name: string) => read(`deploy/kubernetes/${name}.yaml`)

const settings = new Set(Object.values(table).map((setting) => setting.name))
const named = (text: string) => [...text.matchAll(/^ +([A-Z][A-Z_]+):/gm)].map((match) => match[1] ?? "")
const number = (text: string, pattern: RegExp) => Number(pattern.exec(text)?.[1])

/** Not the gateway's: the compose file's other services. */
const foreign = /^(?:POSTGRES_|REDISCLI_AUTH$|BIND$|GATEWAY(?:_\d)?$|OLLAMA_|GF_|SITE$)/

it("when a deployment file sets a setting, then the gateway reads it", () => {
  const all = [compose, ...manifests.map(({ text }) => text)]
    .flatMap(named)
    .filter((name) => !foreign.test(name))
  assert.include(all, "TRUSTED_PROXIES")
  assert.deepStrictEqual(
    all.filter((name) => !settings.has(name)),
    []
  )
})

it("when production requires a setting, then every deployment gives it", () => {
  const cluster = manifest("configmap") + manifest("secret.example")
  for (const name of [table.databaseUrl.name, table.redisUrl.name, table.backendUrl.name]) {
    assert.include(named(compose), name)
    assert.include(named(cluster), name)
  }
})

it("when a gateway is stopped, then its streams have their drain, their grace and time to settle", () => {
  const settle = 10
  const drain = 3000
  const inCompose = [...compose.matchAll(/stop_grace_period: (\d+)s/g)].map((match) => Number(match[1]))
  assert.isAtLeast(inCompose.length, 2)
  for (const seconds of inCompose) {
    assert.isAtLeast(seconds, (drain + table.shutdownGraceMs.fallback) / 1000 + settle)
  }
  const own = manifest("configmap")
  const wanted =
    (number(own, /SHUTDOWN_DRAIN_MS: "(\d+)"/) + number(own, /SHUTDOWN_GRACE_MS: "(\d+)"/)) / 1000 + settle
  assert.isAtLeast(number(manifest("deployment"), /terminationGracePeriodSeconds: (\d+)/), wanted)
})

it("when a container runs, then as an ordinary user, on a read-only file system, without capabilities", () => {
  const services = compose
    .split(/^ {2}(?=\S)/m)
    .filter((part) => /gateway|balancer|migrate/.test(part.split(":")[0] ?? ""))
  for (const service of services) {
    assert.match(service, /<<: \*gateway|read_only: true/, service)
  }
  for (const name of ["deployment", "migrate"]) {
    const text = manifest(name)
    for (const wanted of [
      "runAsNonRoot: true",
      "readOnlyRootFilesystem: true",
      "allowPrivilegeEscalation: false",
      "drop: [ALL]",
      "automountServiceAccountToken: false"
    ]) {
      assert.include(text, wanted, name)
    }
  }
})

it("when ports and networks are set, then only the gateway reaches the model server, and only gateways and balancer publish a port", () => {
  const lock = manifest("model-server.example")
  assert.match(lock, /namespace: models[\s\S]*policyTypes: \[Ingress\][\s\S]*port: 11434/)
  const published = [...compose.matchAll(/ports: \["([^"]+)"\]/g)].map((match) => match[1])
  // With a profile: the balancer, Caddy (two ports in one list), Grafana.
  assert.deepStrictEqual(published, ["127.0.0.1:8080:8080", "127.0.0.1:8081:8080", "127.0.0.1:3000:3000"])
  assert.include(compose, 'ports: ["80:80", "443:443"]')
})

it("when the manifests are applied, then nothing lands in a namespace of others", () => {
  for (const { name, text } of manifests.filter(({ name }) => !name.includes(".example."))) {
    for (const [, namespace] of text.matchAll(/^ {2}namespace: (\S+)$/gm))
      assert.strictEqual(namespace, "tollgate", name)
  }
})

it("when nobody says otherwise, then compose and chart give the gateway the same bounds and the same queue", () => {
  const ofCompose = new Map(
    [...compose.matchAll(/^ {4}([A-Z_]+): \$\{[A-Z_]+:-([^}]*)\}$/gm)].map(([, name, value]) => [name, value])
  )
  const ofChart = [...manifest("configmap").matchAll(/^ {2}([A-Z_]+): (?:"([^"]*)"|(\S+))$/gm)].flatMap(
    ([, name = "", quoted, plain]) =>
      /^(?:BACKEND_URL|SHUTDOWN_)/.test(name) ? [] : [[name, quoted ?? plain]]
  )
  assert.deepStrictEqual(ofChart.map(([name]) => name).toSorted(), [
    "BACKEND_MAX_CONCURRENT",
    "MAX_REQUEST_BODY_BYTES",
    "NUM_PREDICT_CAP",
    "OUTPUT_ABOVE_CAP",
    "PROMPT_OVERFLOW"
  ])
  for (const [name, value] of ofChart) assert.strictEqual(ofCompose.get(name), value, name)
})

it("when a dependency is down, then no probe kills a pod for it", () => {
  const probe = (name: string) =>
    new RegExp(`${name}Probe:\\n(?: {12}.*\\n)+`).exec(manifest("deployment"))?.[0] ?? ""
  assert.include(probe("liveness"), "/healthz")
  assert.include(probe("readiness"), "/healthz")
  // A day and more, so never: the kubelet kills a pod whose start probe fails for so long.
  const startup = probe("startup")
  assert.isAbove(
    number(startup, /failureThreshold: (\d+)/) * number(startup, /periodSeconds: (\d+)/),
    10 * 365 * 86_400
  )
})

it("when the model server is one that is there already, then compose takes its address and starts none", () => {
  assert.include(compose, "BACKEND_URL: ${BACKEND_URL:-http://ollama:11434}")
  const service = (name: string) =>
    compose.split(/^ {2}(?=\S)/m).find((part) => part.startsWith(`${name}:`)) ?? ""
  assert.include(service("ollama"), "profiles: [ollama]")
  assert.include(service("ollama-gpu"), "profiles: [gpu]")
  assert.include(service("gateway"), "ollama: { condition: service_started, required: false }")
  assert.match(read(".env.example"), /^COMPOSE_PROFILES=ollama$/m)
})

it("when a manifest exists, then the kustomization names it, but not the examples", () => {
  const listed = [...manifest("kustomization").matchAll(/^ {2}- (\S+\.yaml)$/gm)].map((match) => match[1])
  const there = manifests
    .map(({ name }) => name)
    .filter((name) => name !== "kustomization.yaml" && !name.endsWith(".example.yaml"))
  assert.deepStrictEqual(listed.toSorted(), there.toSorted())
})

it("when there are two autoscalers, then they differ in the metric only, which the gateway has", () => {
  const leases = read("deploy/kubernetes-leases/autoscaling.yaml")
  const shape = (text: string) =>
    [...text.matchAll(/^ {2}(?:scaleTargetRef|minReplicas|maxReplicas): .*$/gm)].map(String)
  assert.lengthOf(shape(leases), 3)
  assert.deepStrictEqual(shape(leases), shape(manifest("autoscaling")))
  const name = /metric: \{ name: (\w+) \}/.exec(leases)?.[1] ?? ""
  assert.include(read("src/audit/postgres.ts"), `name: "${name}"`)
  assert.include(read("deploy/kubernetes-leases/adapter.yaml"), `as: ${name} `)
})

it("when the chart or what was rendered from it is changed, then both are: npm run manifests", () => {
  assert.deepStrictEqual(JSON.parse(read(recordFile)), hashes(root))
})

it("when nobody says otherwise, then no deployment trusts the X-Forwarded-For of a whole network", () => {
  assert.match(read(`${chart}/values.yaml`), /^trustedProxies: ""$/m)
  for (const { name, text } of manifests) assert.notMatch(text, /^ +TRUSTED_PROXIES:/m, name)
  const [, trusted = ""] = /TRUSTED_PROXIES: (\S+)/.exec(compose) ?? []
  const fixed = [...compose.matchAll(/ipv4_address: ([\d.]+)/g)].map((match) => match[1])
  assert.deepStrictEqual(trusted.split(","), fixed)
})

it("when .env.example is copied, then it says what compose does without it", () => {
  const example = new Map(
    [...read(".env.example").matchAll(/^([A-Z_]+)=(.*)$/gm)].map((match) => [match[1], match[2]])
  )
  const defaults = [...compose.matchAll(/\$\{([A-Z_]+):-([^}]*)\}/g)]
  assert.isAtLeast(defaults.length, 6)
  for (const [, name, value] of defaults) assert.strictEqual(example.get(name), value, name)
  const required = [...compose.matchAll(/\$\{([A-Z_]+):\?/g)].map((match) => match[1] ?? "")
  for (const name of required) assert.strictEqual(example.get(name), "", name)
  const used = new Set([...defaults.map(([, name]) => name), ...required, "COMPOSE_PROFILES"])
  assert.deepStrictEqual(
    [...example.keys()].filter((name) => !used.has(name)),
    []
  )
  // Gateway and model server agree.
  assert.include(compose, " BACKEND_CONTEXT_LENGTH: ${CONTEXT_LENGTH:-65536}")
  assert.include(compose, " OLLAMA_CONTEXT_LENGTH: ${CONTEXT_LENGTH:-65536}")
  assert.include(compose, "BACKEND_MAX_CONCURRENT: ${OLLAMA_NUM_PARALLEL:-1}")
})

it("when compose mounts a file or a folder of ours, then it exists, and images have a version", () => {
  const mounted = [...compose.matchAll(/"\.\/([^:"]+):/g)].map((match) => match[1] ?? "")
  assert.includeMembers(mounted, [
    "deploy/caddy/Caddyfile",
    "deploy/prometheus",
    "deploy/grafana/tollgate.json"
  ])
  for (const file of mounted) assert.isTrue(existsSync(path.join(root, file)), file)
  for (const [, image = ""] of compose.matchAll(/image: (\S+)/g)) {
    assert.match(image, /^tollgate$|:v?\d+(?:\.\d+)+[\w.-]*$/)
  }
  // Prometheus finds the sidecars by the port they listen on, and names the job as the alerts do.
  const scrape = read("deploy/prometheus/compose.yaml")
  assert.include(compose, 'BIND: "*:9091"')
  assert.include(scrape, "port: 9091")
  assert.include(scrape, "job_name: tollgate")
  assert.include(read("deploy/grafana/provisioning/datasources/prometheus.yaml"), "http://prometheus:9090")
})

it("when the chart takes settings, then under the names that are no values of their own, and all are texts", () => {
  const reserved = /list ((?:"[A-Z_]+" ?)+)/.exec(read(`${chart}/templates/configmap.yaml`))?.[1] ?? ""
  const names = [...reserved.matchAll(/"([A-Z_]+)"/g)].map((match) => match[1] ?? "")
  assert.isAtLeast(names.length, 6)
  for (const name of names) assert.isTrue(settings.has(name), name)
  const values = readdirSync(path.join(root, "test/deploy/values")).map((name) =>
    read(`test/deploy/values/${name}`)
  )
  for (const [, , line = ""] of values.join("\n").matchAll(/^(settings): \{(.*)\}$/gm)) {
    for (const [, name = ""] of line.matchAll(/([A-Z_]+):/g)) assert.isTrue(settings.has(name), name)
  }
})

it("when the guide shows values of the chart, then they are those that lint:deploy renders", () => {
  assert.deepStrictEqual(blocks(read("docs/deploy.md"), "yaml"), [read("test/deploy/values/guide.yaml")])
})
