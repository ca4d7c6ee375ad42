/** Why the gateway cannot listen, as one line. */
import { codeOf } from "../infra/errorCode.ts"
import { explain } from "../observability/explain.ts"

const advice: Readonly<Record<string, string>> = {
  EADDRINUSE: "another program listens there; stop it, or set another PORT",
  EACCES: "this user may not use this port; set PORT to 1024 or higher",
  EADDRNOTAVAIL: "this machine does not have this address; set HOST to one that it has",
  EAFNOSUPPORT: "this machine has no addresses of this kind; set HOST to one that it has"
}

/** `cause`: the error of Node. */
export const cannotListen = (host: string, port: number, cause: unknown): string => {
  const known = advice[codeOf(cause) ?? ""]
  const address = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`
  return `cannot listen on ${address}: ${known === undefined ? explain(cause) : `${known} (${codeOf(cause)})`}`
}
