/** What runs in a gateway for one streamed chat, counted while it runs. */
import { spawnSync } from "node:child_process"
import { randomUUID } from "node:crypto"
import { existsSync, readFileSync, rmSync } from "node:fs"
import * as path from "node:path"
import { tmpdir } from "node:os"
import { Data, Effect, Schema } from "effect"
import { fake, makeFakeBackend } from "../FakeBackend.ts"
import { makeGatewayProcess } from "../GatewayProcess.ts"
import { eventually } from "../wait.ts"
import { ask } from "../posting.ts"

const Called = Schema.Struct({ name: Schema.String, line: Schema.Finite, file: Schema.String })
const Calls = Schema.fromJsonString(Schema.Union([Schema.Literal("recording"), Schema.Array(Called)]))

export interface Story {
  /** in the order of the calls */
  readonly calls: ReadonlyArray<typeof Called.Type>
  readonly functions: number
  readonly files: number
  /** how often a call was in another file than the one before */
  readonly changes: number
}

const storyOf = (calls: Story["calls"]): Story => ({
  calls,
  functions: new Set(calls.map(({ file, line, name }) => `${file}:${line}:${name}`)).size,
  files: new Set(calls.map(({ file }) => file)).size,
  changes: calls.filter(({ file }, i) => i > 0 && file !== calls[i - 1]?.file).length
})

class NoStory extends Data.TaggedError("NoStory")<{ readonly message: string }> {}

const hook = path.join(import.meta.dirname, "hook.ts")
const rounds = 8

/**
 * The shortest story of some equal chats: what the gateway does by the clock makes the others longer. Model server, key and
 * connections are warm. Five frames and the last one come one after the other.
 */
export const tellStory = Effect.fnUntraced(function* (
  /** the folder of the project; any version that has these settings and commands */
  checkout: string,
  stores: { readonly databaseUrl: string; readonly redisUrl: string }
) {
  const backend = yield* makeFakeBackend
  backend.setModels(["m:latest"])
  backend.always({
    does: "stream",
    lines: [
      ...["One", " two", " three", " four", " five"].map(fake.chat),
      fake.done("chat", { eval_count: 5 })
    ],
    gapMs: 10
  })
  const env = {
    NODE_ENV: "production",
    DATABASE_URL: stores.databaseUrl,
    REDIS_URL: stores.redisUrl,
    BACKEND_URL: backend.url
  }
  const tollgate = (...words: ReadonlyArray<string>) =>
    Effect.suspend(() => {
      const ran = spawnSync(process.execPath, ["cli/tollgate.js", ...words], {
        cwd: checkout,
        env: { PATH: process.env["PATH"], ...env },
        encoding: "utf8"
      })
      return ran.status === 0 ? Effect.succeed(ran.stdout.trim()) : new NoStory({ message: ran.stderr })
    })
  yield* tollgate("migrate")
  const file = path.join(tmpdir(), `story-${process.pid}-${Date.now()}.json`)
  yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(file, { force: true })))
  const gateway = yield* makeGatewayProcess(
    { ...env, NODE_OPTIONS: `--import=${hook}`, STORY: file },
    path.join(checkout, "src/main.ts")
  )
  // A story may be told twice in the same database.
  const tenant = `t-${randomUUID()}`
  yield* tollgate("create-tenant", "--name", tenant, "--allow-all-models")
  const secret = yield* tollgate("create-key", "--tenant", tenant, "--name", "k")
  const chat = ask(`${gateway.url}/api/chat`, {
    secret,
    body: { model: "m", messages: [{ role: "user", content: "Count to five" }] }
  })
  const signalled = Effect.gen(function* () {
    rmSync(file, { force: true })
    gateway.signal("SIGUSR2")
    yield* eventually(
      Effect.sync(() => existsSync(file)),
      Boolean
    )
    return yield* Schema.decodeEffect(Calls)(readFileSync(file, "utf8"))
  })
  yield* eventually(chat, ({ text }) => text.includes('"done":true'))
  yield* Effect.repeat(chat, { times: 5 })
  const stories: Array<Story> = []
  while (stories.length < rounds) {
    yield* signalled
    const { text } = yield* chat
    // What ends a request comes a moment after the last byte.
    yield* Effect.sleep("20 millis")
    const calls = yield* signalled
    if (!text.includes('"done":true') || calls === "recording") return yield* new NoStory({ message: text })
    stories.push(storyOf(calls))
  }
  return stories.reduce((shortest, story) => (story.calls.length < shortest.calls.length ? story : shortest))
}, Effect.scoped)
