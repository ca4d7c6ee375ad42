import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"
import { HttpServer } from "effect/http"
import { compactAt } from "../../cli/connect/Client.ts"
import { clients } from "../../cli/connect/clients.ts"
import { printed } from "../../cli/connect/texts.ts"
import { pages } from "../../build/clients.ts"
import { layerInMemory, memoryKey } from "../support/inMemory.ts"
import { ownEnvironment } from "../support/ownEnvironment.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { failsWith } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"

it("when a client is in the source, then its page and the table have what the source makes", () => {
  for (const [file, text] of pages())
    assert.strictEqual(existsSync(file) ? readFileSync(file, "utf8") : "", text, "npm run clients writes it")
})

it("when settings are printed, then they have address, model, window and output bound, and no key", () => {
  const facts = { url: "https://gateway.test:8443", model: "odd'model:7b", window: 54_321, output: 1234 }
  for (const client of clients) {
    const text = printed(client, facts, "/secrets/key of mine")
    assert.include(text, facts.url, client.name)
    assert.include(text.replaceAll(`'\\''`, "'"), facts.model, client.name)
    assert.include(text, `TOLLGATE_KEY="$(cat '/secrets/key of mine')"`, client.name)
    const figures = [facts.window, facts.window - facts.output, compactAt(facts)]
    // What has no field for it says so on its page.
    if (!["open-webui", "ai-sdk"].includes(client.name))
      assert.isTrue(
        figures.some((figure) => text.includes(String(figure))),
        client.name
      )
    if (!["open-webui", "codex"].includes(client.name)) assert.include(text, "1234", client.name)
  }
})

/** `connect` with the words of one line. */
const connect = (line: string, ...more: ReadonlyArray<string>) =>
  tollgateHere("connect", ...line.split(" "), ...more)

/** A home of its own, which the process gets and gives back. */
const ownHome = Effect.tap(temporaryFolder, (HOME) => ownEnvironment({ HOME }))

const key = memoryKey()
const gateway = (extraSurfaces: ReadonlyArray<"responses" | "messages">) =>
  layerInMemory({ keys: [key], server: { extraSurfaces: new Set(extraSurfaces) } })

const address = Effect.map(HttpServer.HttpServer, ({ address }) => HttpServer.formatAddress(address))

const keyFileIn = (home: string) => {
  const file = path.join(home, "key")
  writeFileSync(file, `${key.secret}\n`)
  return file
}

const test = testWith(it.effect, Layer.mergeAll(Admin, gateway([])))

testWith(it.effect, Admin)(
  "when a surface is off, then connect says how to switch it on; when it is on, then nothing",
  function* () {
    const off = yield* Effect.flatMap(address, (url) =>
      connect("codex --model m --window 16384", "--url", url)
    ).pipe(Effect.provide(gateway([])))
    assert.strictEqual(off.code, 0)
    assert.strictEqual(
      off.stderr,
      "Codex CLI needs /v1/responses, which this gateway does not serve: start it with EXTRA_SURFACES=responses\n"
    )
    const on = yield* Effect.flatMap(address, (url) =>
      connect("codex --model m --window 16384", "--url", url)
    ).pipe(Effect.provide(gateway(["responses"])))
    assert.strictEqual(on.stderr, "")
    const nobody = yield* connect("opencode --model m --window 16384 --url http://127.0.0.1:1")
    assert.strictEqual(
      nobody.stderr,
      "http://127.0.0.1:1 does not answer as a gateway: is it the right --url?\n"
    )
  }
)

test("when the key may not use the model, or the window is not known, then connect says so", function* () {
  const file = keyFileIn(yield* ownHome)
  const url = yield* address
  const ran = yield* tollgateHere("connect", "pi", "--model", "other", "--key-file", file, "--url", url)
  assert.include(ran.stderr, 'this key may not use the model "other"; it may use: m:latest')
  const small = yield* connect("qwen --model m --window 16384 --url", url)
  assert.strictEqual(
    small.stderr,
    "a window of 16384 is too small: the first request of Qwen Code has some 20000 tokens\n"
  )
  assert.include(ran.stderr, "the context window is not known, so 4096 is assumed: give --window")
  assert.notInclude(ran.stdout + ran.stderr, key.secret)
  const json = yield* connect("pi --model m --window 9999 --max-output 77 --url", url, "--json")
  const Shown = Schema.Struct({
    files: Schema.Array(Schema.Struct({ path: Schema.String, content: Schema.String }))
  })
  const { files } = yield* Schema.decodeEffect(Schema.fromJsonString(Shown))(json.stdout)
  assert.include(files.at(-1)?.content ?? "", '"contextWindow": 9999')
  assert.include(files.at(-1)?.content ?? "", '"maxTokens": 77')
})

test("when settings are written, then the difference is shown, what was there stays, and again nothing changes", function* () {
  const home = yield* ownHome
  const file = path.join(home, ".pi/agent/models.json")
  mkdirSync(path.dirname(file), { recursive: true })
  const before = '{"providers":{"mine":{"baseUrl":"http://x"}}}'
  writeFileSync(file, before)
  const url = yield* address
  const write = connect("pi --model m --window 8192 --key-file", keyFileIn(home), "--url", url, "--write")
  const first = yield* write
  assert.strictEqual(first.code, 0, first.stderr)
  assert.include(first.stdout, `- ${before}`)
  assert.include(first.stdout, '+     "tollgate": {')
  const Written = Schema.fromJsonString(
    Schema.Struct({ providers: Schema.Record(Schema.String, Schema.Struct({ baseUrl: Schema.String })) })
  )
  const { providers } = yield* Schema.decodeEffect(Written)(readFileSync(file, "utf8"))
  assert.deepStrictEqual(providers, { mine: { baseUrl: "http://x" }, tollgate: { baseUrl: `${url}/v1` } })
  assert.strictEqual(readFileSync(`${file}.before-tollgate`, "utf8"), before)
  const script = path.join(home, ".config/tollgate/pi.sh")
  assert.strictEqual(statSync(script).mode & 0o777, 0o600)
  for (const text of [first.stdout, readFileSync(script, "utf8"), readFileSync(file, "utf8")])
    assert.notInclude(text, key.secret)
  const second = yield* write
  assert.match(second.stdout, /^.*pi\.sh: nothing to change\n.*models\.json: nothing to change\nthen: /)
})

test("when a file cannot be merged, then it is named, and no file is written", function* () {
  const home = yield* ownHome
  const file = path.join(home, ".config/zed/settings.json")
  mkdirSync(path.dirname(file), { recursive: true })
  writeFileSync(file, '{ "theme": "One" } // mine')
  const ran = yield* connect("zed --model m --window 8192 --url http://127.0.0.1:1 --write")
  assert.strictEqual(ran.code, 1)
  assert.include(ran.stderr, "settings.json: the file is not plain JSON: add by hand what connect prints")
  assert.strictEqual(readFileSync(file, "utf8"), '{ "theme": "One" } // mine')
  assert.isFalse(existsSync(path.join(home, ".config/tollgate/zed.sh")))
})

const refused = [
  ["emacs --model m", /^tollgate: client must be codex, claude,/],
  ["pi", /--model is required/],
  ["pi --model m --url https://gateway.example/v1", /--url must be an address .* without a path/],
  ["pi --model m --key-file /nowhere/key", /--key-file must be a file that can be read/],
  ["pi --model m --window 5", /--window must be 1024 tokens or more/],
  ["pi --model m --window 2000 --max-output 2000", /--max-output must be from 1 to less/],
  ["pi --model m --key tg_x", /unknown option --key/]
] as const

test("when connect is refused, then it is one line that names what to change", function* () {
  for (const [line, message] of refused) failsWith(yield* connect(line), message)
})
