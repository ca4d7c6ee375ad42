/**
 * The URLs of Postgres and Redis, and TLS for their connections. The URLs name the files, with the parameters of libpq:
 * `sslrootcert` (the CA), `sslcert` and `sslkey` (a client certificate).
 *
 * *Details* The files are read again for every connection, so a renewed certificate needs no restart. While one of them
 * cannot be read, or certificate and key do not belong together, the last good ones are used: they are being replaced.
 *
 * *Gotchas* The client of Postgres calls `tls.connect` in an event listener. An exception there would end the process, so
 * the options have a finished `secureContext`, and never files that may be wrong.
 */
import { createPrivateKey, X509Certificate } from "node:crypto"
import { readFileSync, statSync } from "node:fs"
import {
  type ConnectionOptions,
  createSecureContext,
  type SecureContext,
  type SecureContextOptions
} from "node:tls"
import { Result } from "effect"

/** What is wrong with the parameters of a URL, without their values. */
export interface TlsProblem {
  readonly given: string
  readonly expected: string
}

interface Files {
  readonly sslrootcert: string | undefined
  readonly sslcert: string | undefined
  readonly sslkey: string | undefined
}

/** Bundles of all public CAs take about 250 KiB. */
const maxFileBytes = 1_048_576

/** The text of a PEM file and what it has, or undefined when it cannot be used. */
const readPem = <A>(file: string | undefined, parse: (pem: string) => A) => {
  try {
    if (file === undefined || statSync(file).size > maxFileBytes) return undefined
    const pem = readFileSync(file, "utf8")
    return { pem, parsed: parse(pem) }
  } catch {
    return undefined
  }
}

const parseCertificate = (pem: string) => new X509Certificate(pem)

const makeContext = (content: SecureContextOptions): Result.Result<SecureContext, TlsProblem> =>
  Result.try({
    try: () => createSecureContext(content),
    catch: () => ({ given: "certificates that TLS refuses", expected: "certificates with strong keys" })
  })

/** The context of the files as they are now, or what is wrong with them. */
const load = (files: Files): Result.Result<SecureContext, TlsProblem> => {
  const unusable = (name: keyof Files, expected: string) =>
    Result.fail({ given: `an ${name} that cannot be used`, expected })
  const { sslcert, sslkey, sslrootcert } = files
  const ca = readPem(sslrootcert, parseCertificate)
  if (sslrootcert !== undefined && ca === undefined) {
    return unusable("sslrootcert", "a readable PEM file with the certificate of the CA")
  }
  const ofCa = ca === undefined ? {} : { ca: ca.pem }
  if (sslcert === undefined && sslkey === undefined) return makeContext(ofCa)
  if (sslcert === undefined || sslkey === undefined) {
    return Result.fail({ given: "one of sslcert and sslkey", expected: "both or none" })
  }
  const cert = readPem(sslcert, parseCertificate)
  if (cert === undefined) return unusable("sslcert", "a readable PEM file with the client's certificate")
  const key = readPem(sslkey, createPrivateKey)
  if (key === undefined) return unusable("sslkey", "a readable PEM file with a key without a passphrase")
  return cert.parsed.checkPrivateKey(key.parsed)
    ? makeContext({ ...ofCa, cert: cert.pem, key: key.pem })
    : Result.fail({
        given: "sslcert and sslkey that do not belong together",
        expected: "a certificate and its key"
      })
}

/** `secureContext` is read when a connection copies the options. */
const makeOptions = (files: Files, first: SecureContext, verifyName: boolean): ConnectionOptions => {
  let last = first
  return {
    get secureContext() {
      last = Result.getOrElse(load(files), () => last)
      return last
    },
    rejectUnauthorized: true,
    ...(verifyName ? {} : { checkServerIdentity: () => undefined })
  }
}

const known = ["sslrootcert", "sslcert", "sslkey"] as const

type Options = Result.Result<ConnectionOptions | undefined, TlsProblem>

/** `also`: other parameters that may be there. */
const readOptions = (
  parameters: URLSearchParams,
  also: ReadonlyArray<string>,
  verifyName: boolean
): Options => {
  const names: ReadonlyArray<string> = [...known, ...also]
  if ([...parameters.keys()].some((name) => /^(?:ssl|tls)/i.test(name) && !names.includes(name))) {
    return Result.fail({ given: "an unknown ssl parameter", expected: `none but ${names.join(", ")}` })
  }
  const root = parameters.get("sslrootcert") ?? undefined
  const files = {
    // libpq's word for the CAs that the machine trusts.
    sslrootcert: root === "system" ? undefined : root,
    sslcert: parameters.get("sslcert") ?? undefined,
    sslkey: parameters.get("sslkey") ?? undefined
  }
  return Result.map(load(files), (first) => makeOptions(files, first, verifyName))
}

const withoutTls = (parameters: URLSearchParams, also: ReadonlyArray<string>, expected: string): Options =>
  known.some((name) => parameters.has(name))
    ? Result.fail({ given: "certificates without TLS", expected })
    : Result.map(readOptions(parameters, also, true), () => undefined)

const parametersOf = (url: string): URLSearchParams =>
  URL.canParse(url) ? new URL(url).searchParams : new URLSearchParams()

/**
 * The TLS of a `postgres://` URL by its `sslmode`; undefined without one, and with `disable`. `require` checks certificate and
 * name like `verify-full`. `allow` and `prefer` are refused, because an attacker on the network could then force plain text.
 */
export const readPostgresTls = (url: string): Options => {
  const parameters = parametersOf(url)
  const mode = parameters.get("sslmode") ?? "disable"
  switch (mode) {
    case "disable":
      return withoutTls(parameters, ["sslmode"], "sslmode=verify-full with them")
    case "require":
    case "verify-ca":
    case "verify-full":
      return readOptions(parameters, ["sslmode"], mode !== "verify-ca")
    default:
      return Result.fail({
        given: "another sslmode",
        expected: "sslmode disable, require, verify-ca or verify-full"
      })
  }
}

/** Whether the text is the URL of one Redis server. A comma list has the nodes of a Redis Cluster, which is not supported. */
export const isRedisUrl = (text: string): boolean =>
  URL.canParse(text) && ["redis:", "rediss:"].includes(new URL(text).protocol) && !/,\s*rediss?:/.test(text)

/** The TLS of `REDIS_URL`; undefined for `redis:`. Certificate and name are always checked. */
export const readRedisTls = (url: string): Options =>
  url.startsWith("rediss:")
    ? readOptions(parametersOf(url), [], true)
    : withoutTls(parametersOf(url), [], "rediss: instead of redis:")
