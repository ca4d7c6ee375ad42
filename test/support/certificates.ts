/** Certificates for servers with TLS, made by openssl and thrown away with their scope. */
import { spawnSync } from "node:child_process"
import { chmodSync, chownSync, copyFileSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { Effect } from "effect"
import { temporaryFolder } from "./temporaryFolder.ts"

const openssl = (folder: string, ...words: ReadonlyArray<string>) => {
  const { error, status, stderr } = spawnSync("openssl", words, { cwd: folder, encoding: "utf8" })
  if (status !== 0) throw new Error(`openssl ${words.join(" ")}: ${error?.message ?? stderr}`)
}

const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]

const makeAuthority = (folder: string, name: string) =>
  openssl(
    folder,
    "req",
    "-x509",
    ...newKey,
    "-keyout",
    `${name}.key`,
    "-out",
    `${name}.crt`,
    "-days",
    "2",
    "-subj",
    `/CN=${name}`
  )

/** A certificate of `authority`. With `days` -1 it has expired a day ago. */
const sign = (
  folder: string,
  name: string,
  authority: string,
  subject: string,
  days: number,
  names: "names" | "hostname" = "names"
) => {
  openssl(
    folder,
    "x509",
    "-req",
    "-in",
    `${subject}.csr`,
    "-CA",
    `${authority}.crt`,
    "-CAkey",
    `${authority}.key`,
    "-CAcreateserial",
    "-days",
    String(days),
    "-extfile",
    names,
    "-out",
    `${name}.crt`
  )
}

const makeRequest = (folder: string, subject: string) =>
  openssl(
    folder,
    "req",
    "-new",
    ...newKey,
    "-keyout",
    `${subject}.key`,
    "-out",
    `${subject}.csr`,
    "-subj",
    `/CN=${subject}`
  )

/**
 * A folder with `ca` and `other` (two authorities); `server` (for localhost and 127.0.0.1 by `ca`), `named` (for localhost only)
 * and `expired` with the same key; `tollgate` (a client by `ca`) and `stranger` (a client by `other`). Each is a `.crt` and a `.key`.
 */
export const makeCertificates = Effect.map(temporaryFolder, (folder) => {
  writeFileSync(path.join(folder, "names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")
  writeFileSync(path.join(folder, "hostname"), "subjectAltName=DNS:localhost\n")
  for (const name of ["ca", "other"]) makeAuthority(folder, name)
  for (const subject of ["server", "tollgate", "stranger"]) makeRequest(folder, subject)
  sign(folder, "server", "ca", "server", 2)
  sign(folder, "named", "ca", "server", 2, "hostname")
  sign(folder, "expired", "ca", "server", -1)
  sign(folder, "tollgate", "ca", "tollgate", 2)
  sign(folder, "stranger", "other", "stranger", 2)
  chmodSync(folder, 0o755)
  return {
    folder,
    file: (name: string) => path.join(folder, name),
    /** A copy that the server process may read, and nobody else. */
    give: (from: string, to: string, owner: number | undefined) => {
      copyFileSync(path.join(folder, from), path.join(folder, to))
      chmodSync(path.join(folder, to), 0o600)
      if (owner !== undefined) chownSync(path.join(folder, to), owner, owner)
      return path.join(folder, to)
    }
  }
})
