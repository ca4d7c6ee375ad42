/**
 * `npm run playground`: builds the page into `playground/built`, from where the gateway serves it (`src/http/playground.ts`).
 * What is built is in the repository, so that the gateway needs no bundler; `playground/test/build.test.ts` fails when it
 * is not what the sources make.
 */
import { readFileSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { build } from "esbuild"
import { ideas } from "../src/backend/demo/ideas.ts"

const folder = import.meta.dirname

/** Buttons that ask what the demo model has an answer to. */
const ideaButtons = Object.values(ideas)
  .map(({ label, prompt }) => `<button type="button"><small>${label}</small><span>${prompt}</span></button>`)
  .join("\n            ")

/** The sources are modules, which are strict. The licence of `marked` must go with its code, and its package does not mark it as one. */
const head = `"use strict"; /* with marked, copyright 2018-2026 MarkedJS, 2011-2018 Christopher Jeffrey, MIT licence */`

/** The text of `page.html`, `page.js` and `style.css` in `playground/built`. */
export const buildPage = async (): Promise<Readonly<Record<string, string>>> => {
  const { outputFiles } = await build({
    entryPoints: { page: "script/wiring.js", style: "page.css" },
    absWorkingDir: folder,
    outdir: "built",
    bundle: true,
    minify: true,
    // An inline script cannot import, so it is one script.
    format: "iife",
    target: "es2024",
    charset: "utf8",
    legalComments: "none",
    banner: { js: head },
    logLevel: "error",
    write: false
  })
  return {
    ...Object.fromEntries(outputFiles.map(({ path: file, text }) => [path.basename(file), text])),
    "page.html": readFileSync(path.join(folder, "page.html"), "utf8").replace("<!--ideas-->", ideaButtons)
  }
}

if (import.meta.main)
  for (const [name, text] of Object.entries(await buildPage()))
    writeFileSync(path.join(folder, "built", name), text)
