/** A request as code that runs as pasted, with the key in `TOLLGATE_KEY`. Works on plain values, without the page. */

const literal = (value) => JSON.stringify(value, undefined, 2)

const pythons = { true: "True", false: "False", null: "None" }
/** JSON but for three words. */
const python = (value) =>
  JSON.stringify(value, undefined, 4)
    .replaceAll(/"[^"\\]*(?:\\.[^"\\]*)*"|\w+/g, (token) => pythons[token] ?? token)
    .replaceAll("\n", "\n    ")

const keywords = (body) =>
  Object.entries(body)
    .map(([name, value]) => `    ${name}=${python(value)},\n`)
    .join("")

/** A here-document has no quoting and no limit of length: no line of the JSON can be its end. */
const curl = (origin, path, body) => `curl -sN ${origin}${path} \\
  -H "Authorization: Bearer $TOLLGATE_KEY" \\
  -H "Content-Type: application/json" \\
  --data-binary @- <<'JSON'
${literal(body)}
JSON
`

const writers = {
  native: {
    curl,
    python: (origin, _path, body) => `import os
from ollama import Client

client = Client(
    host=${literal(origin)},
    headers={"Authorization": f"Bearer {os.environ['TOLLGATE_KEY']}"},
)
for part in client.chat(
${keywords(body)}):
    print(part.message.content or "", end="", flush=True)
print()
`,
    javascript: (origin, _path, body) => `import { Ollama } from "ollama"

const client = new Ollama({
  host: ${literal(origin)},
  headers: { Authorization: \`Bearer \${process.env.TOLLGATE_KEY}\` }
})
const answer = await client.chat(${literal(body)})
for await (const part of answer) process.stdout.write(part.message.content)
console.log()
`
  },
  openai: {
    curl,
    python: (origin, _path, body) => `import os
from openai import OpenAI

client = OpenAI(
    base_url=${literal(`${origin}/v1`)},
    api_key=os.environ["TOLLGATE_KEY"],
)
for chunk in client.chat.completions.create(
${keywords(body)}):
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
`,
    javascript: (origin, _path, body) => `import OpenAI from "openai"

const client = new OpenAI({
  baseURL: ${literal(`${origin}/v1`)},
  apiKey: process.env.TOLLGATE_KEY
})
const answer = await client.chat.completions.create(${literal(body)})
for await (const chunk of answer) process.stdout.write(chunk.choices[0]?.delta.content ?? "")
console.log()
`
  }
}

export const snippetOf = ({ surface, language, origin, path, body }) =>
  writers[surface][language](origin, path, body)

const packages = { native: "ollama", openai: "openai" }

/** What has to be installed for it. */
export const needsOf = (surface, language) =>
  language === "python"
    ? `Needs pip install ${packages[surface]}.`
    : language === "javascript"
      ? `Needs npm install ${packages[surface]}; save it as ask.mjs.`
      : "Needs nothing but curl."

/** From the last question on, or everything. A call of a tool stays with the question it belongs to. */
export const turnsFor = (scope, turns, typed) => {
  const answered = turns.at(-1)?.role !== "user" && turns.at(-1)?.role !== "tool"
  const next =
    typed !== "" || turns.length === 0
      ? [...turns, { role: "user", content: typed === "" ? "Hello" : typed }]
      : answered
        ? turns.slice(0, turns.findLastIndex(({ role }) => role !== "assistant") + 1)
        : turns
  const question = next.findLastIndex(({ role }) => role === "user")
  return scope === "all" || question === -1 ? next : next.slice(question)
}
