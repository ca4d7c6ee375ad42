/**
 * TLS for the connections to Postgres and Redis. Their URLs name the files, with the parameters of libpq: `sslrootcert` (the
 * CA), `sslcert` and `sslkey` (a client certificate).
 *
 * *Details* The files are read again for every connection, so a renewed certificate needs no restart. While one of them
 * cannot be read, or certificate and key do not belong together, the last good ones are used: they are being replaced.
 *
 * *Gotchas* The client of Postgres calls `tls.connect` in an event listener. An exception there would end the process, so
 * the options have a finished `secureContext`, and never files that may be wrong.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto"
import { readFileSync, statSync } from "node:fs"
import { type ConnectionOptions, createSecureContext, type SecureContext } from "node:tls"
import { Predicate, Result } from "effect"

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

const readPem = (file: string): string | undefined => {
  try {
    const about = statSync(file)
    return about.isFile() && about.size <= maxFileBytes ? readFileSync(file, "utf8") : undefined
  } catch {
    return undefined
  }
}

const attempt = <A>(make: () => A): A | undefined => {
  try {
    return make()
  } catch {
    return undefined
  }
}

const parseCertificate = (text: string | undefined): X509Certificate | undefined =>
  text === undefined ? undefined : attempt(() => new X509Certificate(text))

const parseKey = (text: string | undefined): KeyObject | undefined =>
  text === undefined ? undefined : attempt(() => createPrivateKey(text))

const contentOf = ({ sslcert, sslkey, sslrootcert }: Files) => ({
  ca: sslrootcert === undefined ? undefined : readPem(sslrootcert),
  cert: sslcert === undefined ? undefined : readPem(sslcert),
  key: sslkey === undefined ? undefined : readPem(sslkey)
})

const problemOf = (files: Files): TlsProblem | undefined => {
  const { ca, cert, key } = contentOf(files)
  const wrong = (name: keyof Files, expected: string) => ({
    given: `an ${name} that cannot be used`,
    expected
  })
  if (files.sslrootcert !== undefined && parseCertificate(ca) === undefined) {
    return wrong("sslrootcert", "a readable PEM file with the certificate of the CA")
  }
  if ((files.sslcert === undefined) !== (files.sslkey === undefined)) {
    return { given: "one of sslcert and sslkey", expected: "both or none" }
  }
  if (files.sslcert === undefined) return undefined
  const certificate = parseCertificate(cert)
  if (certificate === undefined) return wrong("sslcert", "a readable PEM file with the client's certificate")
  const privateKey = parseKey(key)
  if (privateKey === undefined) return wrong("sslkey", "a readable PEM file with a key without a passphrase")
  return certificate.checkPrivateKey(privateKey)
    ? undefined
    : { given: "sslcert and sslkey that do not belong together", expected: "a certificate and its key" }
}

/** Returns the context of the files as they are now, or the last good one. */
const makeContext = (files: Files): (() => SecureContext | undefined) => {
  let last: SecureContext | undefined
  let used = ""
  return () => {
    const content = contentOf(files)
    const now = JSON.stringify(content)
    if (last !== undefined && now === used) return last
    if (last === undefined || problemOf(files) === undefined) {
      last = attempt(() => createSecureContext(content)) ?? last
      used = now
    }
    return last
  }
}

/** The options of a connection. `secureContext` is read when a connection copies them. */
const makeOptions = (files: Files, verifyName: boolean): ConnectionOptions => {
  const context = makeContext(files)
  return {
    get secureContext() {
      return context()
    },
    rejectUnauthorized: true,
    ...(verifyName ? {} : { checkServerIdentity: () => undefined })
  }
}

const known = ["sslrootcert", "sslcert", "sslkey"] as const

export type TlsParameter = (typeof known)[number]

const readFiles = (
  parameters: URLSearchParams,
  also: ReadonlyArray<string>
): Result.Result<Files, TlsProblem> => {
  const names: ReadonlyArray<string> = [...known, ...also]
  const unknown = [...parameters.keys()].some((name) => /^(?:ssl|tls)/i.test(name) && !names.includes(name))
  if (unknown) {
    return Result.fail({ given: "an unknown ssl parameter", expected: `none but ${names.join(", ")}` })
  }
  const valueOf = (name: TlsParameter) => parameters.get(name) ?? undefined
  const root = valueOf("sslrootcert")
  // libpq's word for the CAs that the machine trusts.
  const files = {
    sslrootcert: root === "system" ? undefined : root,
    sslcert: valueOf("sslcert"),
    sslkey: valueOf("sslkey")
  }
  const problem = problemOf(files)
  return problem === undefined ? Result.succeed(files) : Result.fail(problem)
}

const isGiven = (parameters: URLSearchParams): boolean => known.some((name) => parameters.has(name))

/**
 * The TLS of a `postgres://` URL by its `sslmode`; undefined without one, and with `disable`. `require` checks certificate and
 * name like `verify-full`. `allow` and `prefer` are refused, because an attacker on the network could then force plain text.
 */
export const readPostgresTls = (url: string): Result.Result<ConnectionOptions | undefined, TlsProblem> => {
  const parameters = URL.canParse(url) ? new URL(url).searchParams : new URLSearchParams()
  const mode = parameters.get("sslmode") ?? "disable"
  if (!["disable", "require", "verify-ca", "verify-full"].includes(mode)) {
    return Result.fail({
      given: "another sslmode",
      expected: "sslmode disable, require, verify-ca or verify-full"
    })
  }
  if (mode === "disable" && isGiven(parameters)) {
    return Result.fail({ given: "certificates without TLS", expected: "sslmode=verify-full with them" })
  }
  return Result.map(readFiles(parameters, ["sslmode"]), (files) =>
    mode === "disable" ? undefined : makeOptions(files, mode !== "verify-ca")
  )
}

/** The TLS of a Redis URL; undefined for `redis:`. Certificate and name are always checked. */
export const readRedisTls = (
  parameters: URLSearchParams,
  tls: boolean
): Result.Result<ConnectionOptions | undefined, TlsProblem> => {
  if (!tls && isGiven(parameters)) {
    return Result.fail({ given: "certificates without TLS", expected: "rediss: instead of redis:" })
  }
  return Result.map(readFiles(parameters, []), (files) => (tls ? makeOptions(files, true) : undefined))
}

const untrusted = "its certificate is not signed by a trusted CA (sslrootcert)"
const clientRefused = "it demands a client certificate, or refuses the one of sslcert"

/** By the code of Node and OpenSSL. */
const reasons: Readonly<Record<string, string>> = {
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: untrusted,
  UNABLE_TO_GET_ISSUER_CERT: untrusted,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: untrusted,
  SELF_SIGNED_CERT_IN_CHAIN: untrusted,
  DEPTH_ZERO_SELF_SIGNED_CERT: untrusted,
  CERT_SIGNATURE_FAILURE: untrusted,
  CERT_HAS_EXPIRED: "its certificate has expired",
  CERT_NOT_YET_VALID: "its certificate is not valid yet",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for another host name",
  ERR_SSL_WRONG_VERSION_NUMBER: "it does not speak TLS on this port",
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: clientRefused,
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA: clientRefused,
  ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE: clientRefused,
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED: clientRefused,
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN: clientRefused
}

/** Why TLS failed, as a part of a sentence about the server. undefined: for another reason. */
export const describeTlsFailure = (cause: unknown, depth = 5): string | undefined => {
  if (!Predicate.isObjectKeyword(cause)) return undefined
  if ("code" in cause && typeof cause.code === "string") {
    const reason = reasons[cause.code]
    if (reason !== undefined) return reason
  }
  if ("message" in cause && cause.message === "The server does not support TLS") {
    return "it does not speak TLS on this port"
  }
  if (depth === 0) return undefined
  return (
    ("reason" in cause ? describeTlsFailure(cause.reason, depth - 1) : undefined) ??
    ("cause" in cause ? describeTlsFailure(cause.cause, depth - 1) : undefined)
  )
}
