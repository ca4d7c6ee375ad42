/**
 * `REDIS_URL`: the URL of one server, or a comma list of the nodes of a Redis Cluster. `rediss:` means TLS, and `sslrootcert`,
 * `sslcert` and `sslkey` in the query name its files (`tls.ts`). A cluster has the parameters of its first URL.
 */
import type { ConnectionOptions } from "node:tls"
import type { Result } from "effect"
import { readRedisTls, type TlsProblem } from "./tls.ts"

const urlsOf = (text: string): ReadonlyArray<string> => text.split(",").map((url) => url.trim())

/** More than one: the nodes of a cluster. undefined: one of them is no URL of Redis. */
export const readRedisUrl = (text: string): ReadonlyArray<string> | undefined => {
  const urls = urlsOf(text)
  const isServer = (url: string) => URL.canParse(url) && ["redis:", "rediss:"].includes(new URL(url).protocol)
  return urls.every(isServer) ? urls : undefined
}

/** undefined: without TLS. */
export const readRedisUrlTls = (text: string): Result.Result<ConnectionOptions | undefined, TlsProblem> => {
  const [first = ""] = urlsOf(text)
  const [, query = ""] = first.split("?", 2)
  return readRedisTls(new URLSearchParams(query), first.startsWith("rediss:"))
}
