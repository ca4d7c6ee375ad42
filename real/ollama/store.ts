/** The models of `modelfiles.ts` in a server's store: made once per machine, then linked for each server. */
import { createHash } from "node:crypto"
import { createReadStream, openAsBlob, readFileSync } from "node:fs"
import { cp, link, mkdir, mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Effect } from "effect"
import type { Scope } from "effect/Scope"
import { TestServerFailed } from "../../test/support/servers/processes.ts"
import { cacheFolder, makeOnce } from "./cache.ts"
import { writeGguf } from "./gguf.ts"
import { definitions, type ModelDefinition } from "./modelfiles.ts"
import { makeOllamaServer } from "./OllamaServer.ts"
import { weights } from "./tinyModels.ts"

const digestOf = async (file: string): Promise<string> => {
  const hash = createHash("sha256")
  for await (const chunk of createReadStream(file)) hash.update(chunk)
  return `sha256:${hash.digest("hex")}`
}

const post = async (url: URL, body: unknown): Promise<void> => {
  const answer = await fetch(url, { method: "POST", body: JSON.stringify(body) })
  const text = await answer.text()
  if (!answer.ok || text.includes('"error"')) throw new Error(`${url.pathname}: ${answer.status} ${text}`)
}

const upload = async (server: URL, name: keyof typeof weights, folder: string): Promise<string> => {
  const file = path.join(folder, `${name}.gguf`)
  await writeGguf(file, weights[name])
  const digest = await digestOf(file)
  const answer = await fetch(new URL(`/api/blobs/${digest}`, server), {
    method: "POST",
    body: await openAsBlob(file)
  })
  if (!answer.ok) throw new Error(`${name}.gguf: ${answer.status} ${await answer.text()}`)
  await rm(file)
  return digest
}

/** Creates all models, or those of `names`, on a running server. */
export const createModels = async (
  server: URL,
  names: ReadonlyArray<string> = Object.keys(definitions)
): Promise<void> => {
  const folder = await mkdtemp(path.join(tmpdir(), "tgm-"))
  try {
    const digests = new Map<string, string>()
    const all: ReadonlyArray<readonly [string, ModelDefinition]> = Object.entries(definitions)
    for (const [name, definition] of all.filter(([name]) => names.includes(name))) {
      const { projector, weights: text, parameters, ...rest } = definition
      const files: Record<string, string> = {}
      for (const file of projector === undefined ? [text] : [text, projector]) {
        const digest = digests.get(file) ?? (await upload(server, file, folder))
        digests.set(file, digest)
        files[`${file}.gguf`] = digest
      }
      await post(new URL("/api/create", server), {
        model: name,
        files,
        // More threads than free cores wait for each other, and the tests are not alone on their machine. Ollama 0.33 makes no
        // repeated word less likely by itself, and without that `top_p` cuts off the end, which is no likelier than a word.
        parameters: { num_thread: 1, repeat_penalty: 1.1, ...parameters },
        ...rest,
        stream: false
      })
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Another source makes other models, and another server another store. */
const storeFolder = (binary: string): string => {
  const hash = createHash("sha256").update(binary)
  for (const file of ["gguf.ts", "tinyModels.ts", "modelfiles.ts", "store.ts"])
    hash.update(readFileSync(path.join(import.meta.dirname, file)))
  return path.join(cacheFolder(), `models-${hash.digest("hex").slice(0, 16)}`)
}

const failed = (cause: unknown) => new TestServerFailed({ detail: "the models could not be made", cause })

/** The store as it is kept; only for `linkedStore`. */
const madeStore = (binary: string): Effect.Effect<string, TestServerFailed> => {
  const folder = storeFolder(binary)
  return makeOnce(folder, (models) =>
    makeOllamaServer({ binary, models }).pipe(
      Effect.flatMap(({ url }) => Effect.tryPromise({ try: () => createModels(url), catch: failed })),
      Effect.scoped
    )
  ).pipe(Effect.as(folder))
}

/** A store of one's own, to create and delete models in; its blobs are links to the kept ones. */
export const linkedStore = Effect.fnUntraced(function* (
  binary: string
): Effect.fn.Return<string, TestServerFailed, Scope> {
  const kept = yield* madeStore(binary)
  const own = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "tgm-"))),
    (name) => Effect.promise(() => rm(name, { recursive: true, force: true, maxRetries: 5 }))
  )
  yield* Effect.tryPromise({
    try: async () => {
      await cp(path.join(kept, "manifests"), path.join(own, "manifests"), { recursive: true })
      await mkdir(path.join(own, "blobs"))
      for (const blob of await readdir(path.join(kept, "blobs"))) {
        const [from, to] = [path.join(kept, "blobs", blob), path.join(own, "blobs", blob)]
        // The cache may lie on another file system.
        await link(from, to).catch(() => cp(from, to))
      }
    },
    catch: failed
  })
  return own
})
