/**
 * `npm run manifests`: renders `deploy/kubernetes` and `deploy/kubernetes-leases` from the chart. `-- --check` compares instead.
 * Needs helm (`HELM`, or on the `PATH`).
 *
 * *Details* `rendered.json` has a hash of the chart and one of what was rendered from it. So a test without helm sees when one
 * of them was changed alone. Alerts and dashboard are links in the chart: helm packs the files that they lead to.
 */
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"

const root = path.resolve(import.meta.dirname, "../..")
export const chart = "deploy/helm/tollgate"
export const recordFile = "deploy/kubernetes/rendered.json"

/** Template, target, and the values that differ from the chart's. */
const common = ["image.repository=tollgate"]
const rendered: ReadonlyArray<readonly [string, string, ReadonlyArray<string>]> = [
  ...["configmap", "migrate", "deployment", "service", "disruption", "autoscaling", "networkpolicy"].map(
    (name) => [name, `deploy/kubernetes/${name}.yaml`, common] as const
  ),
  [
    "modelserver",
    "deploy/kubernetes/model-server.example.yaml",
    [...common, "networkPolicy.lockModelServer=true"]
  ] as const,
  [
    "autoscaling",
    "deploy/kubernetes-leases/autoscaling.yaml",
    [...common, "autoscaling.openLeases=200"]
  ] as const
]

const hashOf = (folder: string, names: ReadonlyArray<string>): string => {
  const hash = createHash("sha256")
  for (const name of names.toSorted())
    hash.update(`${name}\n${readFileSync(path.join(folder, name), "utf8")}\n`)
  return hash.digest("hex")
}

/** What `rendered.json` must say of the files in `folder`. */
export const hashes = (folder: string) => ({
  chart: hashOf(
    path.join(root, chart),
    readdirSync(path.join(root, chart), { recursive: true, encoding: "utf8" }).filter((name) =>
      /\.(?:yaml|tpl|cfg|json|txt)$/.test(name)
    )
  ),
  manifests: hashOf(
    folder,
    rendered.map(([, target]) => target)
  )
})

const run = (command: string, args: ReadonlyArray<string>): string => {
  const { error, status, stderr, stdout } = spawnSync(command, args, { cwd: root, encoding: "utf8" })
  if (status !== 0) throw new Error(`${command}: ${error?.message ?? stderr}`)
  return stdout
}

const helm = process.env["HELM"] ?? "helm"

const render = (folder: string) => {
  for (const [template, target, values] of rendered) {
    const text = run(helm, [
      "template",
      "tollgate",
      chart,
      "--namespace",
      "tollgate",
      "--kube-version",
      "1.34.0",
      "--show-only",
      `templates/${template}.yaml`,
      ...values.flatMap((value) => ["--set", value])
    ])
    const body = text.replaceAll(/^(?:# Source: .*)\n/gm, "").replace(/^---\n/, "")
    writeFileSync(
      path.join(folder, target),
      `# Rendered from ${chart} by \`npm run manifests\`: change it there.\n${body}`
    )
  }
  run("npx", [
    "oxfmt",
    "-c",
    path.join(root, ".oxfmtrc.json"),
    ...rendered.map(([, target]) => path.join(folder, target))
  ])
}

const check = () => {
  const folder = mkdtempSync(path.join(tmpdir(), "tgm-"))
  try {
    for (const [, target] of rendered) mkdirSync(path.dirname(path.join(folder, target)), { recursive: true })
    render(folder)
    const different = rendered.filter(
      ([, target]) =>
        readFileSync(path.join(folder, target), "utf8") !== readFileSync(path.join(root, target), "utf8")
    )
    for (const [, target] of different) process.stderr.write(`${target} is not what the chart renders\n`)
    process.exitCode = different.length === 0 ? 0 : 1
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

if (import.meta.main) {
  if (process.argv.includes("--check")) check()
  else {
    render(root)
    writeFileSync(path.join(root, recordFile), `${JSON.stringify(hashes(root), null, 2)}\n`)
  }
}
