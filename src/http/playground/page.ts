/**
 * `GET /playground`: one document with its style and script inside, because every other path is blocked. The content
 * security policy has the hash of both, so no other script or style can run, and Trusted Types prevent markup from
 * strings.
 */
import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { HttpServerResponse } from "effect/http"
import type { RequestContext } from "../../request/RequestContext.ts"

const read = (name: string): string => readFileSync(path.join(import.meta.dirname, name), "utf8")

const hashOf = (text: string): string => `'sha256-${createHash("sha256").update(text).digest("base64")}'`

/** In the order in which they need each other. */
const parts = ["elements", "surfaces", "headroom", "models", "turns", "chat", "snippets", "wiring"]

/** The sources are modules. The browser gets one script, because an inline script cannot import. */
const joined = (): string =>
  `"use strict"\n${parts
    .map((name) =>
      read(path.join("script", `${name}.js`))
        .replaceAll(/^import [^"]*"[^"]*"\n/gm, "")
        .replaceAll(/^export /gm, "")
    )
    .join("\n")}`

export interface Page {
  readonly html: string
  readonly headers: Readonly<Record<string, string>>
}

/** Reads and joins the sources; done once, when the server is made. */
export const makePage = (): Page => {
  const [style, script] = [read("playground.css"), joined()]
  return {
    html: read("playground.html")
      .replace("<!--style-->", () => `<style>${style}</style>`)
      .replace("<!--script-->", () => `<script>${script}</script>`),
    headers: {
      "content-security-policy": [
        "default-src 'none'",
        `script-src ${hashOf(script)}`,
        `style-src ${hashOf(style)}`,
        "connect-src 'self'",
        // the icon in the tab
        "img-src data:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'"
      ].join("; "),
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
      "referrer-policy": "no-referrer",
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()"
    }
  }
}

export const respondPage = (context: RequestContext, page: Page): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(page.html, {
    contentType: "text/html; charset=utf-8",
    headers: { ...page.headers, "x-request-id": context.arrival.requestId }
  })
