/** `connect`: the settings of a client for this gateway, printed or written. */
import { homedir } from "node:os"
import * as path from "node:path"
import { Console, Effect, FileSystem, Option, Result } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { mustBe } from "../../src/admin/Errors.ts"
import { outputCap } from "../environment.ts"
import { described } from "../help.ts"
import { FileInvalid } from "../errorMessages.ts"
import * as flags from "../flags.ts"
import { note, show } from "../terminal.ts"
import {
  type Client,
  type Facts,
  notServed,
  outputIn,
  type Settings,
  smallestWindow,
  tooSmall
} from "../connect/Client.ts"
import { clients } from "../connect/clients.ts"
import { difference, textOf } from "../connect/files.ts"
import { commandOf, filesOf, freshText, printed } from "../connect/texts.ts"

const atHome = (file: string): string =>
  file.startsWith("~/") ? path.join(process.env["HOME"] ?? homedir(), file.slice(2)) : path.resolve(file)

const fromRoot = (file: string): string => (file.startsWith("~/") ? file : path.resolve(file))

export const readKey = Effect.fnUntraced(function* (keyFile: string | undefined) {
  if (keyFile === undefined) return Option.fromUndefinedOr(process.env["TOLLGATE_KEY"])
  const fs = yield* FileSystem.FileSystem
  const text = yield* Effect.mapError(fs.readFileString(atHome(keyFile)), () =>
    mustBe("key-file", "a file that can be read")
  )
  return Option.some(text.trim())
})

/** Loaded when it is asked: other commands need no HTTP client. */
const gateway = Effect.promise(() => import("../connect/gateway.ts"))

/** Says on stderr what will not work yet, and how to change it. */
const warnOfSurface = Effect.fnUntraced(function* (client: Client, url: string) {
  const { served } = yield* gateway
  const state = yield* served(url, client.surface)
  if (state === "unknown") return yield* note(`${url} does not answer as a gateway: is it the right --url?`)
  if (state === "off") yield* note(notServed(client))
})

/** The window of the model as the gateway tells it to the key. */
const windowOf = Effect.fnUntraced(function* (url: string, model: string, key: Option.Option<string>) {
  if (Option.isNone(key)) return Option.none<number>()
  const { modelsOf } = yield* gateway
  const models = yield* Effect.result(modelsOf(url, key.value))
  if (Result.isFailure(models)) {
    yield* note(`${models.failure.why}: ${models.failure.mend}`)
    return Option.none<number>()
  }
  const found = models.success.find(({ id }) => id === model || id === `${model}:latest`)
  if (found === undefined) {
    const names = models.success.map(({ id }) => id).join(", ")
    yield* note(`this key may not use the model ${JSON.stringify(model)}; it may use: ${names}`)
  }
  return Option.fromUndefinedOr(found?.context_length)
})

const factsOf = Effect.fnUntraced(function* (
  given: Pick<Facts, "url" | "model"> & {
    readonly window: number | undefined
    readonly output: number | undefined
  },
  key: Option.Option<string>
) {
  const { model, url } = given
  const told = yield* windowOf(url, model, key)
  const window = given.window ?? Option.getOrElse(told, () => smallestWindow)
  if (given.window === undefined && Option.isNone(told))
    yield* note(`the context window is not known, so ${smallestWindow} is assumed: give --window`)
  const cap = yield* outputCap
  if (window < 1024) return yield* mustBe("window", "1024 tokens or more")
  const output = given.output ?? outputIn(window, cap)
  if (output < 1 || output >= window)
    return yield* mustBe("max-output", `from 1 to less than the window of ${window}`)
  return { model, url, window, output }
})

const readThere = Effect.fnUntraced(function* (file: string) {
  const fs = yield* FileSystem.FileSystem
  return (yield* fs.exists(file)) ? yield* fs.readFileString(file) : ""
})

/** What is there, and what will be. Fails before anything is written when a file cannot be merged. */
const planOf = Effect.fnUntraced(function* (settings: Settings) {
  const file = atHome(settings.path)
  const before = yield* Effect.mapError(
    readThere(file),
    () => new FileInvalid({ file: settings.path, problem: "the file cannot be read" })
  )
  return yield* Option.match(textOf(settings, before), {
    onNone: () =>
      new FileInvalid({
        file: settings.path,
        problem: "the file is not plain JSON: add by hand what connect prints without --write"
      }),
    onSome: (after) => Effect.succeed({ path: settings.path, file, before, after })
  })
})

const write = Effect.fnUntraced(function* (files: ReadonlyArray<Settings>) {
  const fs = yield* FileSystem.FileSystem
  const plans = yield* Effect.forEach(files, planOf)
  for (const { after, before, file, path: shown } of plans) {
    if (after === before) {
      yield* Console.log(`${shown}: nothing to change`)
      continue
    }
    yield* Console.log([`${shown}:`, ...difference(before, after)].join("\n"))
    yield* Effect.mapError(
      Effect.gen(function* () {
        yield* fs.makeDirectory(path.dirname(file), { recursive: true })
        if (before !== "") yield* fs.writeFileString(`${file}.before-tollgate`, before)
        yield* fs.writeFileString(file, after, { mode: 0o600 })
      }),
      () => new FileInvalid({ file: shown, problem: "the file cannot be written" })
    )
  }
})

const anOrigin = "an address such as https://gateway.example, without a path"

const readUrl = (text: string): Option.Option<string> =>
  URL.canParse(text) && /^https?:\/\/[^/?#@]+\/?$/.test(text)
    ? Option.some(text.replace(/\/$/, ""))
    : Option.none()

export const gatewayUrl = (description: string) =>
  flags.text("url", "url", description).pipe(
    Flag.filterMap(readUrl, () => anOrigin),
    Flag.withDefault("http://127.0.0.1:8080")
  )

export const keyFile = flags.optionalText("key-file", "path", "The file with the key; else TOLLGATE_KEY")

export const connect = Command.make(
  "connect",
  {
    client: Argument.Literals(
      "client",
      clients.map(({ name }) => name)
    ).pipe(Argument.withDescription("Which client")),
    url: gatewayUrl("The gateway, as the client reaches it"),
    model: flags.text("model", "name", "The model, as /v1/models lists it"),
    keyFile,
    window: flags.optional(flags.count("window", "Tokens of the context window; else as the gateway says")),
    output: flags.optional(flags.count("max-output", "Most tokens of an answer")),
    write: flags.toggle("write", "Show the difference and write the files")
  },
  Effect.fnUntraced(function* ({ client: name, keyFile, write: writes, ...given }) {
    const client = clients.find((one) => one.name === name)
    if (client === undefined) return
    const facts = yield* factsOf(given, yield* readKey(keyFile))
    const small = tooSmall(client, facts)
    if (small !== undefined) yield* note(small)
    yield* warnOfSurface(client, facts.url)
    const secretFile = keyFile === undefined ? undefined : fromRoot(keyFile)
    const files = filesOf(client, facts, secretFile)
    const run = commandOf(client, facts)
    if (!writes) {
      const texts = files.map((file) => ({ path: file.path, content: freshText(file) }))
      return yield* show({ client: name, ...facts, files: texts, run }, printed(client, facts, secretFile))
    }
    yield* write(files)
    return yield* Console.log(`then: ${run}`)
  })
).pipe(
  described(
    "Print or write the settings of a client for this gateway",
    "tollgate connect codex --model qwen3-coder:30b --window 65536",
    ["tollgate connect opencode --model qwen3-coder:30b --key-file key --write", "The key stays in its file"]
  )
)
