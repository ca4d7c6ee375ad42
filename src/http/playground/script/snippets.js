/** The same request as code, without the key. */
import { $, modelField, promptField } from "./elements.js"
import { conversation } from "./chat.js"
import { surface, surfaces } from "./surfaces.js"

let language = "curl"

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`
const literal = (value) => JSON.stringify(value, undefined, 2)
const python = (value, indent = "") => {
  const inner = `${indent}    `
  if (value === true || value === false) return value ? "True" : "False"
  if (Array.isArray(value)) {
    return `[\n${value.map((item) => `${inner}${python(item, inner)},\n`).join("")}${indent}]`
  }
  if (typeof value === "object") {
    const entries = Object.entries(value).map(
      ([name, item]) => `${inner}${JSON.stringify(name)}: ${python(item, inner)},\n`
    )
    return `{\n${entries.join("")}${indent}}`
  }
  return JSON.stringify(value)
}
const keywords = (body) =>
  Object.entries(body)
    .map(([name, value]) => `    ${name}=${python(value, "    ")},\n`)
    .join("")

const snippets = {
  curl: (path, body) =>
    `curl -N ${location.origin}${path} \\\n  -H "Authorization: Bearer $TOLLGATE_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(literal(body))}\n`,
  javascript: (path, body) =>
    path === "/api/chat"
      ? `import { Ollama } from "ollama"\n\nconst client = new Ollama({\n  host: ${literal(location.origin)},\n  headers: { Authorization: \`Bearer \${process.env.TOLLGATE_KEY}\` }\n})\n\nconst answer = await client.chat(${literal(body)})\nfor await (const frame of answer) process.stdout.write(frame.message.content)\n`
      : `import OpenAI from "openai"\n\nconst client = new OpenAI({\n  baseURL: ${literal(`${location.origin}/v1`)},\n  apiKey: process.env.TOLLGATE_KEY\n})\n\nconst answer = await client.chat.completions.create(${literal(body)})\nfor await (const chunk of answer) process.stdout.write(chunk.choices[0]?.delta.content ?? "")\n`,
  python: (path, body) =>
    path === "/api/chat"
      ? `import os\nfrom ollama import Client\n\nclient = Client(\n    host=${literal(location.origin)},\n    headers={"Authorization": f"Bearer {os.environ['TOLLGATE_KEY']}"},\n)\n\nanswer = client.chat(\n${keywords(body)})\nfor frame in answer:\n    print(frame["message"]["content"], end="", flush=True)\n`
      : `import os\nfrom openai import OpenAI\n\nclient = OpenAI(\n    base_url=${literal(`${location.origin}/v1`)},\n    api_key=os.environ["TOLLGATE_KEY"],\n)\n\nanswer = client.chat.completions.create(\n${keywords(body)})\nfor chunk in answer:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)\n`
}

/** The next request, with the text that is being typed. */
export const showCode = () => {
  const { path, body } = surfaces[surface()]
  const turns = conversation()
  const typed = promptField.value.trim()
  const last = turns.at(-1)
  const next =
    last?.role === "user" ? turns : [...turns, { role: "user", content: typed === "" ? "Hello" : typed }]
  $("snippet").textContent = snippets[language](path, body(modelField.value || "<model>", next))
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.setAttribute("aria-selected", String(tab.dataset.language === language))
  }
}

export const speak = (name) => {
  language = name
  showCode()
}
