/** A text for each person who gets a key. */
import { Effect, FileSystem, Option, Result } from "effect"
import { Command, Flag } from "effect/cli"
import * as path from "node:path"
import { Registry } from "../../src/admin/Registry.ts"
import type { KeyOverview } from "../../src/admin/rows.ts"
import { grantOf } from "../../src/domain/Caller.ts"
import { described } from "../help.ts"
import { FileInvalid } from "../errorMessages.ts"
import { readText } from "../files.ts"
import * as flags from "../flags.ts"
import { readKeys } from "../keyFile.ts"
import { installedModels, namesOf } from "../modelHints.ts"
import { amount, counted, escapeText, minute, notesAsText, show } from "../terminal.ts"

interface LetterFacts {
  readonly key: KeyOverview
  readonly secret: string
  /** where people reach the gateway, without a slash at its end */
  readonly address: string
  /** names that the person may ask for */
  readonly models: ReadonlyArray<string>
}

const standard = `Hello {{name}},

this is your key for the language models at {{address}}.

Key:      {{key}}
          Keep it secret: it is yours alone, and what it uses is counted as yours.
Expires:  {{expires}}
Models:   {{models}}
Limits:   {{limits}}

Your first request:

{{first_request}}

In programs that speak OpenAI's protocol:

  base URL  {{address}}/v1
  API key   the key above

When something fails, say which request it was: the answer has its id in the header X-Request-ID.
`

const limitsOf = ({ budgets, effective }: KeyOverview): string =>
  [
    `${amount(effective.rpm)} requests and ${amount(effective.tpm)} tokens a minute`,
    `${amount(effective.concurrent)} requests at a time`,
    ...budgets.map(
      ({ budget, period }) =>
        `${amount(budget)} tokens ${period === "total" ? "in all" : `a ${period} (UTC)`}`
    )
  ].join(", ")

const firstRequest = ({ address, key, models: [model = "MODEL"], secret }: LetterFacts): string => {
  const [path, body] = key.scopes.includes("chat")
    ? ["chat/completions", { model, messages: [{ role: "user", content: "Hello" }] }]
    : ["embeddings", { model, input: "Hello" }]
  return [
    `  curl ${address}/v1/${path} \\`,
    `    -H "Authorization: Bearer ${secret}" \\`,
    `    -H "Content-Type: application/json" \\`,
    `    -d '${JSON.stringify(body)}'`
  ].join("\n")
}

/** What a template may name, in two braces. */
const places: Readonly<Record<string, (facts: LetterFacts) => string>> = {
  name: ({ key }) => key.name,
  tenant: ({ key }) => key.tenant,
  address: ({ address }) => address,
  key: ({ secret }) => secret,
  prefix: ({ key }) => key.prefix,
  expires: ({ key }) => (key.expires === null ? "never" : `${minute(key.expires)} UTC`),
  models: ({ models }) => (models.length === 0 ? "none yet" : models.join(", ")),
  limits: ({ key }) => limitsOf(key),
  first_request: firstRequest
}

const placeNames = Object.keys(places)

const place = /\{\{([^{}]*)\}\}/g

/** Fails with the name of a place that does not exist. */
const readTemplate = (text = standard): Result.Result<(facts: LetterFacts) => string, string> => {
  const unknown = [...text.matchAll(place)]
    .map(([, name = ""]) => name.trim())
    .find((name) => !placeNames.includes(name))
  return unknown === undefined
    ? Result.succeed((facts) =>
        text.replaceAll(place, (_, name: string) => places[name.trim()]?.(facts) ?? "")
      )
    : Result.fail(unknown)
}

const readAddress = (text: string): Option.Option<string> =>
  /^https?:\/\/[^\s?#]+$/.test(text) && URL.canParse(text)
    ? Option.some(text.replace(/(?<!\/)\/+$/, ""))
    : Option.none()

/** A name of a file that every system accepts. The prefix of the key makes it unique. */
const fileName = (name: string, prefix: string): string =>
  `${name
    .normalize("NFC")
    .replaceAll(/[^\p{L}\p{N}._-]+/gu, "-")
    .replace(/^[.-]+/, "")
    .slice(0, 60)}.${prefix}.txt`

const maxTemplateBytes = 65_536

export const letters = Command.make(
  "letters",
  {
    keys: flags.text("keys", "path", "The file that create-keys wrote"),
    address: flags
      .text("address", "url", "Where people reach the gateway, such as https://llm.example.org")
      .pipe(Flag.filterMap(readAddress, () => "an address such as https://llm.example.org")),
    out: flags
      .text("out", "folder", "Folder for the texts, which only you may read")
      .pipe(Flag.withDefault("letters")),
    template: flags.optionalText(
      "template",
      "path",
      `A text of your own, with ${placeNames.map((name) => `{{${name}}}`).join(" ")}`
    )
  },
  Effect.fnUntraced(function* ({ address, keys: file, out, template }) {
    const registry = yield* Registry
    const fs = yield* FileSystem.FileSystem
    const write = readTemplate(
      template === undefined ? undefined : yield* readText(template, maxTemplateBytes)
    )
    if (Result.isFailure(write)) {
      return yield* new FileInvalid({
        file: template ?? "",
        problem: `{{${write.failure}}} is unknown: use ${placeNames.map((name) => `{{${name}}}`).join(", ")}`
      })
    }
    const listed = yield* readKeys(file)
    const catalog = yield* installedModels
    const unwritable = () => new FileInvalid({ file: out, problem: "the folder cannot be written" })
    yield* Effect.mapError(fs.makeDirectory(out, { recursive: true, mode: 0o700 }), unwritable)
    const written: Array<string> = []
    const left: Array<string> = []
    for (const { name, prefix, secret } of listed) {
      const key = yield* Effect.option(registry.showKey(prefix))
      if (Option.isNone(key) || key.value.status !== "active") {
        left.push(`  ${prefix}  ${escapeText(name)}`)
        continue
      }
      const ofTenant = namesOf(yield* registry.showTenant(key.value.tenant))
      const names = { ...ofTenant, models: grantOf(ofTenant.models, key.value.ownModels) }
      const models =
        catalog?.offered(names).map((model) => model.name) ??
        (names.models === "all" ? [`those that ${address}/v1/models lists`] : [...names.models])
      const letter = path.join(out, fileName(key.value.name, prefix))
      // Written anew, so that a file with wider rights does not keep them.
      yield* Effect.mapError(
        Effect.andThen(
          fs.remove(letter, { force: true }),
          fs.writeFileString(letter, write.success({ key: key.value, secret, address, models }), {
            mode: 0o600,
            flag: "wx"
          })
        ),
        unwritable
      )
      written.push(letter)
    }
    yield* notesAsText(
      left.length === 0
        ? []
        : [`${counted(left.length, "key")} without a text, because it is not active:`, ...left]
    )
    yield* show({ letters: written, left: left.length }, `${counted(written.length, "letter")} in ${out}`)
  })
).pipe(
  described(
    "Write a text for each person of a file of create-keys: address, key, models, limits and a first request",
    "tollgate letters --keys keys.csv --address https://llm.example.org",
    ["tollgate letters --keys k.csv --address https://x.org --template t.txt", "In your own words"]
  )
)
