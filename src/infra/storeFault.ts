/** What is wrong with a store, in a few fixed words, and what to do. They name nothing of the store: `X-Readiness` has them. */
import { innermost } from "./errorCode.ts"

/** By the SQLSTATE of Postgres, the first word of Redis, the code of Node, or else the text of an error. */
const faults: ReadonlyArray<readonly [fault: string, sign: RegExp, mend: string]> = [
  ["disk full", /^(?:53100|MISCONF)/, "free space on its disk, and see its own log"],
  ["read-only", /^(?:25006|READONLY|MASTERDOWN)/, "name the primary; a full disk may be the reason"],
  ["password refused", /^(?:28[0P]|WRONGPASS|NOAUTH)|requested pass/, "put it into the URL or its file"],
  ["too many connections", /^53300|max number of clients/, "raise what it allows, or have fewer of them"],
  ["memory full", /^OOM/, "raise maxmemory: until then every request is refused with 503"],
  ["starting", /^(?:57P03|LOADING)/, "wait, and see its own log"],
  [
    "unsuitable",
    /^Redis (?:is version|is a node|has maxmemory)/,
    "until then every request is refused with 503"
  ],
  ["certificate refused", /CERT|SELF_SIGNED|ALTNAME/, "see the certificates of the URL and of the server"],
  ["failed", /^(?:\d[0-9A-Z]{4}|XX\d{3}|ERR|NOPERM)\b/, "see its own log"],
  ["no answer", /^/, "check its URL, the network, and that it runs"]
]

export const storeFault = (error: unknown) => {
  const { code, message } = innermost(error) ?? { code: "", message: "" }
  const text = `${code} ${message}`.trimStart()
  const [fault = "", , mend = ""] = faults.find(([, sign]) => sign.test(text)) ?? []
  return { fault, mend }
}
