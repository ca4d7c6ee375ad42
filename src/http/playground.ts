/**
 * `GET /playground`: one document with its style and script inside, because every other path is blocked. The content
 * security policy has the hash of both, so no other script or style can run, and Trusted Types prevent markup from
 * strings. Everything is read once, when the server is made.
 */
import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import * as path from "node:path"
import { gzipSync } from "node:zlib"
import { HttpServerResponse } from "effect/http"
import { ideas } from "../backend/demo/ideas.ts"
import type { RequestContext } from "../request/RequestContext.ts"

const read = (name: string): string =>
  readFileSync(path.join(import.meta.dirname, "../../playground", name), "utf8")

const hashOf = (text: string): string => `'sha256-${createHash("sha256").update(text).digest("base64")}'`

/** The parser of markdown, as its package ships it for browsers. It defines `marked` on the global object. */
const readMarked = (): string =>
  readFileSync(
    path.join(path.dirname(createRequire(import.meta.url).resolve("marked")), "marked.umd.js"),
    "utf8"
  ).replace(/^\/\/# sourceMappingURL.*$/m, "")

const importPattern = /^import (\{[^}]*\}) from "(?:\.\/)?(\w+)(?:\.js)?"\n/gm
const exportPattern = /^export (?=(?:async )?(?:const|class|function\*?) ([\w$]+))/gm

/** A module as a function that runs at once: what it exports is in `$name`, and everything else is its own. */
const scoped = (name: string, text: string): string => {
  const exported = [...text.matchAll(exportPattern)].map((match) => match[1])
  const body = text
    .replaceAll(
      importPattern,
      (_all: string, names: string, from: string) =>
        `const ${names} = ${from === "marked" ? from : `$${from}`}\n`
    )
    .replaceAll(exportPattern, "")
  return `const $${name} = (() => {\n${body}return { ${exported.join(", ")} }\n})()\n`
}

/**
 * The sources are modules. The browser gets one script, because an inline script cannot import: the modules that `entry`
 * needs, each after those it imports.
 */
const joined = (entry: string): string => {
  const found = new Map<string, string>()
  const visit = (name: string) => {
    if (found.has(name) || name === "marked") return
    const text = read(path.join("script", `${name}.js`))
    for (const match of text.matchAll(importPattern)) visit(match[2] ?? "")
    found.set(name, scoped(name, text))
  }
  visit(entry)
  return `"use strict";\n${readMarked()}\n${[...found.values()].join("")}`
}

/** Buttons that ask what the demo model has an answer to. */
const ideaButtons = Object.values(ideas)
  .map(({ label, prompt }) => `<button type="button"><small>${label}</small><span>${prompt}</span></button>`)
  .join("\n            ")

export interface Page {
  readonly html: string
  readonly gzip: Uint8Array
  readonly headers: Readonly<Record<string, string>>
}

/** `bodyBytes` is what one request may have, so that the page makes images small enough. */
export const makePage = ({ bodyBytes }: { readonly bodyBytes: number }): Page => {
  const [style, script] = [read("page.css"), joined("wiring")]
  const html = read("page.html")
    .replace("<!--body-bytes-->", String(bodyBytes))
    .replace("<!--ideas-->", () => ideaButtons)
    .replace("<!--style-->", () => `<style>${style}</style>`)
    .replace("<!--script-->", () => `<script>${script}</script>`)
  return {
    html,
    gzip: gzipSync(html, { level: 9 }),
    headers: {
      "content-security-policy": [
        "default-src 'none'",
        `script-src ${hashOf(script)}`,
        `style-src ${hashOf(style)}`,
        "connect-src 'self'",
        // the icon in the tab, and the images that a user adds
        "img-src data:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'"
      ].join("; "),
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
  page: Page,
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
