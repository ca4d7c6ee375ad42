/** The deployment files agree with the code and with each other; `npm run lint:deploy` holds them to their schemas. */
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { table } from "../../src/Settings.ts"

const root = path.resolve(import.meta.dirname, "../..")
const read = (file: string) => readFileSync(path.join(root, file), "utf8")
const compose = read("docker-compose.yml")
const manifests = readdirSync(path.join(root, "deploy/kubernetes")).map((name) => ({
  name,
  text: read(`deploy/kubernetes/${name}`)
}))
const manifest = (name: string) => read(`deploy/kubernetes/${name}.yaml`)

const settings = new Set(Object.values(table).map((setting) => setting.name))
const named = (text: string) => [...text.matchAll(/^ +([A-Z][A-Z_]+):/gm)].map((match) => match[1] ?? "")
const number = (text: string, pattern: RegExp) => Number(pattern.exec(text)?.[1])

/** Not the gateway's: the compose file's other services. */
const foreign = /^(?:POSTGRES_|OLLAMA_|REDISCLI_AUTH$|BIND$|GATEWAY_\d$)/

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
  const policy = manifest("networkpolicy")
  assert.match(policy, /namespace: models[\s\S]*policyTypes: \[Ingress\][\s\S]*port: 11434/)
  const published = [...compose.matchAll(/ports: \["([^"]+)"\]/g)].map((match) => match[1])
  assert.deepStrictEqual(published, ["127.0.0.1:8080:8080", "127.0.0.1:8081:8080"])
})

it("when a manifest exists, then the kustomization names it, but not the example of a secret", () => {
  const listed = [...manifest("kustomization").matchAll(/^ {2}- (\S+\.yaml)$/gm)].map((match) => match[1])
  const there = manifests
    .map(({ name }) => name)
    .filter((name) => !["kustomization.yaml", "secret.example.yaml"].includes(name))
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
