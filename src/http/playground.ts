/**
 * `GET /playground`: one document with its style and script inside, because every other path is blocked. The content
 * security policy has the hash of both, so no other script or style can run, and Trusted Types prevent markup from
 * strings. `npm run playground` builds the files; they are read once, when the server is made.
 */
import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { gzipSync } from "node:zlib"
import { HttpServerResponse } from "effect/http"
import type { RequestContext } from "../request/RequestContext.ts"

const read = (name: string): string =>
  readFileSync(path.join(import.meta.dirname, "../../playground/built", name), "utf8")

const hashOf = (text: string): string => `'sha256-${createHash("sha256").update(text).digest("base64")}'`

/** What the page is told of the gateway. */
interface PageOptions {
  /** so that it makes images small enough */
  readonly maxRequestBodyBytes: number
  /** for the settings of clients: the longest answer, and which further surfaces are on */
  readonly numPredictCap: number
  readonly extraSurfaces: ReadonlySet<string>
}

export const makePage = ({ extraSurfaces, maxRequestBodyBytes, numPredictCap }: PageOptions) => {
  const [style, script] = [read("style.css"), read("page.js")]
  const html = read("page.html")
    .replace("<!--body-bytes-->", String(maxRequestBodyBytes))
    .replace("<!--output-cap-->", String(numPredictCap))
    .replace("<!--surfaces-->", [...extraSurfaces].join(" "))
    .replace("<!--style-->", () => `<style>${style}</style>`)
    .replace("<!--script-->", () => `<script>${script}</script>`)
  // The icon in the tab and the images that a user adds are `data:`.
  const policy = `default-src 'none'; script-src ${hashOf(script)}; style-src ${hashOf(style)}; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'`
  return {
    html,
    gzip: gzipSync(html, { level: 9 }),
    headers: {
      "content-security-policy": policy,
      "cache-control": "no-store",
      vary: "accept-encoding",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
      "referrer-policy": "no-referrer",
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()"
    }
  }
}

const contentType = "text/html; charset=utf-8"

/** Compressed for those who say that they can read it, which every browser does. */
export const respondPage = (
  context: RequestContext,
  page: ReturnType<typeof makePage>,
  accepted: string
): HttpServerResponse.HttpServerResponse => {
  const headers = { ...page.headers, "x-request-id": context.arrival.requestId }
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/i.test(accepted)
    ? HttpServerResponse.uint8Array(page.gzip, {
        contentType,
        headers: { ...headers, "content-encoding": "gzip" }
      })
    : HttpServerResponse.text(page.html, { contentType, headers })
}
