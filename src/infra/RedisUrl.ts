/**
 * `REDIS_URL` in its three forms: one server, a comma list of them for Redis Cluster, and the sentinels of one master,
 * `redis+sentinel://user:password@host:26379,host:26379/master/0?sentinelPassword=…`. User and password are the
 * server's; `rediss` means TLS to all of them, and `sslrootcert`, `sslcert` and `sslkey` in the query name its files (`tls.ts`).
 */
import type { ConnectionOptions } from "node:tls"
import type { Result } from "effect"
import { readRedisTls, type TlsProblem } from "./tls.ts"

export interface Sentinels {
  readonly sentinels: ReadonlyArray<{ readonly host: string; readonly port: number }>
  /** the name of the master at the sentinels */
  readonly master: string
  readonly database: number
  readonly username: string | undefined
  readonly password: string | undefined
  readonly sentinelPassword: string | undefined
  readonly tls: boolean
}

export type RedisAddress =
  | { readonly kind: "single"; readonly url: string }
  | { readonly kind: "cluster"; readonly urls: readonly [string, ...ReadonlyArray<string>] }
  | ({ readonly kind: "sentinel" } & Sentinels)

const isServer = (text: string): boolean =>
  URL.canParse(text) && ["redis:", "rediss:"].includes(new URL(text).protocol)

const sentinelUrl = /^(rediss?)\+sentinel:\/\/(?:([^@/?]*)@)?([^@/?]+)\/([^/?]+)(?:\/(\d{1,5}))?(?:\?(.*))?$/

/** Parses a host as the authority of a URL, which handles ports and IPv6. */
const hostOf = (text: string) => {
  const url = URL.canParse(`redis://${text}`) ? new URL(`redis://${text}`) : undefined
  return url === undefined || url.hostname === "" || url.host + url.pathname !== text
    ? undefined
    : { host: url.hostname.replace(/^\[|\]$/g, ""), port: url.port === "" ? 26_379 : Number(url.port) }
}

const credentialsOf = (text: string | undefined) => {
  const url = `redis://${text ?? ""}@x`
  if (!URL.canParse(url)) return undefined
  const { password, username } = new URL(url)
  const given = (part: string) => (part === "" ? undefined : decodeURIComponent(part))
  return { username: given(username), password: given(password) }
}

const readSentinels = (text: string): Sentinels | undefined => {
  const [, scheme, secrets, hosts = "", master = "", database = "0", query] = sentinelUrl.exec(text) ?? []
  const credentials = credentialsOf(secrets)
  const sentinels = hosts.split(",").map((host) => hostOf(host.trim()))
  const valid = sentinels.filter((one) => one !== undefined)
  if (scheme === undefined || credentials === undefined || valid.length < sentinels.length) return undefined
  const parameters = new URLSearchParams(query)
  const isKnown = (name: string) => name === "sentinelPassword" || name.startsWith("ssl")
  if (![...parameters.keys()].every(isKnown)) return undefined
  return {
    sentinels: valid,
    master,
    database: Number(database),
    ...credentials,
    sentinelPassword: parameters.get("sentinelPassword") ?? undefined,
    tls: scheme === "rediss"
  }
}

/** undefined: the text has none of the three forms */
export const readRedisUrl = (text: string): RedisAddress | undefined => {
  if (/^rediss?\+sentinel:/.test(text)) {
    const sentinels = readSentinels(text)
    return sentinels === undefined ? undefined : { kind: "sentinel", ...sentinels }
  }
  const [first = "", ...others] = text.split(",").map((part) => part.trim())
  if (![first, ...others].every(isServer)) return undefined
  return others.length === 0 ? { kind: "single", url: first } : { kind: "cluster", urls: [first, ...others] }
}

/** The TLS of a URL that `readRedisUrl` can read; undefined without TLS. A cluster has the parameters of its first URL. */
export const readRedisUrlTls = (text: string): Result.Result<ConnectionOptions | undefined, TlsProblem> => {
  const [first = ""] = text.startsWith("rediss+") || text.startsWith("redis+") ? [text] : text.split(",")
  const query = first.indexOf("?")
  return readRedisTls(
    new URLSearchParams(query === -1 ? "" : first.slice(query).trim()),
    first.startsWith("rediss")
  )
}
