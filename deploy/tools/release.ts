/**
 * `node deploy/tools/release.ts v1.2.3`: prints the CHANGELOG's section of a version. Ends with 1 when tag, package.json, chart,
 * manifests and CHANGELOG do not name the same version.
 */
import { readFileSync } from "node:fs"
import * as path from "node:path"

const root = path.resolve(import.meta.dirname, "../..")
const read = (file: string) => readFileSync(path.join(root, file), "utf8")

/** Every file that names the version, and what it names. */
export const namedVersions = (): Readonly<Record<string, string | undefined>> => ({
  "package.json": /"version": "([^"]+)"/.exec(read("package.json"))?.[1],
  "package-lock.json": /"version": "([^"]+)"/.exec(read("package-lock.json"))?.[1],
  "Chart.yaml, version": /^version: (\S+)$/m.exec(read("deploy/helm/tollgate/Chart.yaml"))?.[1],
  "Chart.yaml, appVersion": /^appVersion: (\S+)$/m.exec(read("deploy/helm/tollgate/Chart.yaml"))?.[1],
  "kustomization.yaml": /newTag: (\S+)/.exec(read("deploy/kubernetes/kustomization.yaml"))?.[1]
})

/** The section of a version without its heading; undefined when there is none. */
export const changesOf = (version: string): string | undefined =>
  read("CHANGELOG.md")
    .split(/^## /m)
    .find((section) => section.startsWith(`${version} `) || section.startsWith(`${version}\n`))
    ?.replace(/^.*\n/, "")
    .trim()

if (import.meta.main) {
  const version = (process.argv[2] ?? "").replace(/^v/, "")
  const wrong = Object.entries(namedVersions()).filter(([, named]) => named !== version)
  const changes = changesOf(version)
  for (const [file, named] of wrong) process.stderr.write(`${file} names ${named}, not ${version}\n`)
  if (changes === undefined) process.stderr.write(`CHANGELOG.md has no section ${version}\n`)
  if (wrong.length > 0 || changes === undefined) process.exitCode = 1
  else process.stdout.write(`${changes}\n`)
}
