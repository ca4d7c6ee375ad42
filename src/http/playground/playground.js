// The playground: a client of the gateway like any other. The key lives in one variable and leaves it only as the
// Authorization header of requests to this same origin; whatever users and models say is only ever a text node.
"use strict"

const $ = (id) => document.getElementById(id)
const [keyField, keyNote, modelField, promptField, log, sendButton, live] = [
  "key",
  "key-note",
  "model",
  "prompt",
  "log",
  "send",
  "live"
].map($)
const emptyState = $("empty")

/** The conversation as the models see it, without the system prompt. */
let messages = []
/** Ends the answer that is running; undefined when none is. */
let running
let language = "curl"

const element = (name, className, text) => {
  const made = document.createElement(name)
  if (className) made.className = className
  if (text !== undefined) made.textContent = text
  return made
}
const number = (value) => value.toLocaleString("en-US")
const narrow = matchMedia("(max-width: 820px)")

// ---- what the gateway is asked

const surface = () => document.querySelector("input[name=surface]:checked").value
const figure = (id) => {
  const field = $(id)
  return field.value.trim() === "" || Number.isNaN(field.valueAsNumber) ? undefined : field.valueAsNumber
}
const known = (fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))

const surfaces = {
  native: {
    path: "/api/chat",
    note: "POST /api/chat, newline-delimited JSON",
    body: (model, conversation) => {
      const options = known({
        temperature: figure("temperature"),
        top_p: figure("top-p"),
        num_predict: figure("max-tokens"),
        seed: figure("seed")
      })
      return {
        model,
        messages: conversation,
        stream: true,
        ...(Object.keys(options).length ? { options } : {})
      }
    },
    /** One line is one frame. */
    separator: "\n",
    read: (line) => {
      const frame = JSON.parse(line)
      if (frame.error !== undefined) return { problem: { message: String(frame.error) } }
      return {
        text: frame.message?.content,
        thinking: frame.message?.thinking,
        tools: frame.message?.tool_calls,
        ...(frame.done
          ? {
              ended: frame.done_reason ?? "stop",
              tokensIn: frame.prompt_eval_count,
              tokensOut: frame.eval_count
            }
          : {})
      }
    }
  },
  openai: {
    path: "/v1/chat/completions",
    note: "POST /v1/chat/completions, server-sent events",
    body: (model, conversation) => ({
      model,
      messages: conversation,
      stream: true,
      ...known({
        temperature: figure("temperature"),
        top_p: figure("top-p"),
        max_completion_tokens: figure("max-tokens"),
        seed: figure("seed")
      })
    }),
    /** One event ends with a blank line. */
    separator: "\n\n",
    read: (event) => {
      const data = event.startsWith("data:") ? event.slice(5).trim() : ""
      if (data === "" || data === "[DONE]") return {}
      const chunk = JSON.parse(data)
      if (chunk.error !== undefined) return { problem: chunk.error }
      const choice = chunk.choices?.[0]
      return {
        text: choice?.delta?.content,
        thinking: choice?.delta?.reasoning,
        tools: choice?.delta?.tool_calls,
        ...(choice?.finish_reason ? { ended: choice.finish_reason } : {}),
        ...(chunk.usage
          ? { tokensIn: chunk.usage.prompt_tokens, tokensOut: chunk.usage.completion_tokens }
          : {})
      }
    }
  }
}

const ask = (path, options = {}) =>
  fetch(path, {
    ...options,
    headers: { ...options.headers, authorization: `Bearer ${keyField.value.trim()}` },
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
    referrerPolicy: "no-referrer"
  })

/** The error a response tells of, whatever it is made of. */
const problemOf = async (response) => {
  const text = await response.text().catch(() => "")
  let body
  try {
    body = JSON.parse(text)
  } catch {
    body = undefined
  }
  return {
    status: response.status,
    type: body?.error?.type ?? "error",
    message: body?.error?.message ?? (text.slice(0, 300) || response.statusText),
    requestId: response.headers.get("x-request-id") ?? body?.request_id,
    retryAfterS: Number(response.headers.get("retry-after")) || undefined
  }
}

// ---- what is left

const gauge = (id, left, limit, label) => {
  const box = $(id)
  const share = limit > 0 ? Math.max(0, Math.min(1, left / limit)) : 0
  if (label) box.querySelector("span").textContent = label
  box.querySelector("output").textContent = `${number(left)} of ${number(limit)}`
  const bar = box.querySelector(".bar")
  bar.firstElementChild.style.width = `${share * 100}%`
  bar.setAttribute("aria-valuemax", String(limit))
  bar.setAttribute("aria-valuenow", String(left))
  box.classList.toggle("low", share <= 0.2 && left > 0)
  box.classList.toggle("out", left <= 0)
}

const noGauge = (id, text, label) => {
  const box = $(id)
  if (label) box.querySelector("span").textContent = label
  box.querySelector("output").textContent = text
  box.querySelector("i").style.width = "0"
  box.querySelector(".bar").removeAttribute("aria-valuenow")
  box.classList.remove("low", "out")
}

/** The most a budget was seen to have left: the headers do not tell its size. */
const budgetSeen = new Map()

const showHeadroom = (headers) => {
  const of = (name) => (headers.get(name) === null ? undefined : Number(headers.get(name)))
  for (const [id, noun] of [
    ["gauge-requests", "requests"],
    ["gauge-tokens", "tokens"]
  ]) {
    const [limit, left] = [of(`x-ratelimit-limit-${noun}`), of(`x-ratelimit-remaining-${noun}`)]
    if (limit !== undefined && left !== undefined) gauge(id, left, limit)
  }
  const [period, left] = [headers.get("x-budget-period"), of("x-budget-tokens-remaining")]
  if (period !== null && left !== undefined) {
    const most = Math.max(left, budgetSeen.get(period) ?? 0)
    budgetSeen.set(period, most)
    gauge("gauge-budget", left, most, `Budget (${period})`)
    $("gauge-budget").querySelector("output").textContent = `${number(left)} left`
  } else if (headers.has("x-ratelimit-limit-requests")) noGauge("gauge-budget", "no budget set", "Budget")
}

/** Nothing is consumed by asking for the version; the headers then tell what the answer has cost. */
const refreshHeadroom = async () => {
  const response = await ask("/api/version").catch(() => undefined)
  if (response?.ok) showHeadroom(response.headers)
}

// ---- key and models

const note = (text, kind) => {
  keyNote.textContent = text
  keyNote.className = kind ? `note ${kind}` : "note"
}
const inMemory = "Stays in this tab's memory: never stored, never in the address."

const noModels = (text) => {
  const option = element("option", "", text)
  option.value = ""
  modelField.replaceChildren(option)
  modelField.disabled = true
}

let lookup = 0
const loadModels = async () => {
  const turn = ++lookup
  const key = keyField.value.trim()
  budgetSeen.clear()
  for (const id of ["gauge-requests", "gauge-tokens", "gauge-budget"]) noGauge(id, "–")
  if (key === "") {
    note(inMemory)
    return noModels("Enter a key first")
  }
  if (!/^[\x21-\x7e]{44}$/.test(key)) {
    note("A key has 44 characters.", "")
    return noModels("Enter a key first")
  }
  noModels("Loading…")
  const response = await ask("/api/tags").catch(() => undefined)
  if (turn !== lookup) return
  if (response === undefined) {
    note("The gateway cannot be reached.", "bad")
    return noModels("–")
  }
  showHeadroom(response.headers)
  if (!response.ok) {
    const problem = await problemOf(response)
    if (turn !== lookup) return
    note(
      problem.status === 401 ? "The gateway does not know this key." : `${problem.status} ${problem.message}`,
      "bad"
    )
    return noModels("–")
  }
  const { models } = await response.json()
  if (turn !== lookup) return
  const chatting = models.filter(
    ({ capabilities }) => capabilities === undefined || capabilities.includes("completion")
  )
  if (chatting.length === 0) {
    note("The key works, but no model that chats is open to it.", "bad")
    return noModels("No chat models")
  }
  const before = modelField.value
  modelField.replaceChildren(
    ...chatting.map(({ name }) => {
      const option = element("option", "", name)
      option.value = name
      option.selected = name === before
      return option
    })
  )
  modelField.disabled = false
  note(
    `Key accepted: ${chatting.length === 1 ? "one model" : `${chatting.length} models`}. Kept in memory only.`,
    "good"
  )
}

// ---- the conversation

const atBottom = () => {
  const box = narrow.matches ? document.scrollingElement : log
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80
}
const toBottom = () => {
  const box = narrow.matches ? document.scrollingElement : log
  box.scrollTop = box.scrollHeight
}

const copied = async (button, text) => {
  const before = button.textContent
  try {
    await navigator.clipboard.writeText(text)
  } catch {
    // No clipboard API outside secure contexts: the old way, by a selection.
    const area = element("textarea")
    area.value = text
    button.parentElement.append(area)
    area.select()
    document.execCommand("copy")
    area.remove()
  }
  button.textContent = "Copied"
  setTimeout(() => (button.textContent = before), 1200)
}

const idButton = (requestId) => {
  const button = element("button", "", requestId)
  button.type = "button"
  button.title = "Request id: copy"
  button.addEventListener("click", () => copied(button, requestId))
  return button
}

/** Splits at code fences; both kinds of pieces become text nodes. */
const arranged = (text) =>
  text.split(/^```[^\n`]*\n([\s\S]*?)^```[^\S\n]*$/m).flatMap((piece, index) => {
    if (index % 2 === 0)
      return piece.trim() === "" ? [] : [element("div", "text", piece.replace(/^\n+|\n+$/g, ""))]
    const fence = element("div", "fence")
    const copy = element("button", "", "Copy")
    copy.type = "button"
    copy.addEventListener("click", () => copied(copy, piece))
    fence.append(element("pre", "", piece.replace(/\n$/, "")), copy)
    return [fence]
  })

const showProblem = (turn, problem, retry) => {
  const box = element("div", "problem")
  box.setAttribute("role", "alert")
  box.append(
    element("strong", "", [problem.status, problem.type].filter(Boolean).join(" ") || "The answer broke off"),
    element("div", "", problem.message)
  )
  const row = element("div", "row")
  const again = element("button", "", "Try again")
  again.type = "button"
  again.addEventListener("click", retry)
  row.append(again)
  if (problem.retryAfterS !== undefined) {
    const wait = element("span", "note")
    const until = Date.now() + problem.retryAfterS * 1000
    const tick = () => {
      const left = Math.ceil((until - Date.now()) / 1000)
      wait.textContent = left > 0 ? `possible again in ${duration(left)}` : "possible again now"
      if (left > 0 && wait.isConnected) setTimeout(tick, 1000)
    }
    row.append(wait)
    setTimeout(tick)
  }
  if (problem.requestId) {
    const facts = element("span", "facts")
    facts.append(idButton(problem.requestId))
    row.append(facts)
  }
  box.append(row)
  turn.append(box)
}

const duration = (seconds) =>
  seconds < 90
    ? `${seconds} s`
    : seconds < 5400
      ? `${Math.round(seconds / 60)} min`
      : `${Math.round(seconds / 3600)} h`

const span = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`)

const conversation = () => {
  const system = $("system").value.trim()
  return system === "" ? messages : [{ role: "system", content: system }, ...messages]
}

/** Text arrives faster than a screen is drawn: what has come is shown once a frame. */
const painter = (paint) => {
  let waiting = false
  return () => {
    if (waiting) return
    waiting = true
    requestAnimationFrame(() => {
      waiting = false
      paint()
    })
  }
}

const answer = async () => {
  const { path, body, separator, read } = surfaces[surface()]
  const turn = element("article", "turn assistant running")
  const content = element("div", "answer")
  const text = element("div", "text", "")
  const letters = document.createTextNode("")
  text.append(letters)
  content.append(text)
  turn.append(content)
  log.append(turn)
  log.setAttribute("aria-busy", "true")
  toBottom()

  // A new chat may begin before this answer has ended.
  const thread = messages
  const stop = new AbortController()
  running = stop
  busy(true)
  const started = performance.now()
  let [whole, thought, pieces, firstAt] = ["", "", 0, undefined]
  let [requestId, ended, tokensIn, tokensOut, problem, thinking] = []
  const tools = []

  const paint = painter(() => {
    if (!turn.classList.contains("running")) return
    const follow = atBottom()
    if (thought !== "" && thinking === undefined) {
      thinking = element("details", "thinking")
      thinking.append(element("summary", "", "Thinking"), element("div", "text"))
      content.before(thinking)
    }
    if (thinking !== undefined) thinking.lastElementChild.textContent = thought
    letters.data = whole
    const elapsed = (performance.now() - (firstAt ?? started)) / 1000
    live.textContent =
      pieces > 1 && elapsed > 0.2
        ? `${number(pieces)} tokens · ${(pieces / elapsed).toFixed(0)} / s`
        : `${number(pieces)} tokens`
    if (follow) toBottom()
  })

  try {
    const response = await ask(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body(modelField.value, conversation())),
      signal: stop.signal
    })
    requestId = response.headers.get("x-request-id") ?? undefined
    showHeadroom(response.headers)
    if (response.ok) {
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
      let rest = ""
      for (;;) {
        const { done, value } = await reader.read()
        const parts = (rest + (value ?? "")).split(separator)
        rest = done ? "" : parts.pop()
        for (const part of parts) {
          if (part.trim() === "") continue
          const frame = read(part)
          if (frame.problem) problem = { ...frame.problem, status: frame.problem.code, requestId }
          if (frame.text || frame.thinking || frame.tools) {
            pieces += 1
            firstAt ??= performance.now()
          }
          whole += frame.text ?? ""
          thought += frame.thinking ?? ""
          if (frame.tools) tools.push(...frame.tools)
          ended = frame.ended ?? ended
          tokensIn = frame.tokensIn ?? tokensIn
          tokensOut = frame.tokensOut ?? tokensOut
        }
        paint()
        if (done) break
      }
      if (ended === undefined && problem === undefined) {
        problem = { message: "The connection closed before the answer was complete.", requestId }
      }
    } else problem = await problemOf(response)
  } catch (error) {
    if (stop.signal.aborted) ended = "stopped"
    else problem = { type: "unreachable", message: `The gateway did not answer: ${error.message}`, requestId }
  }

  const follow = atBottom()
  turn.classList.remove("running")
  log.setAttribute("aria-busy", "false")
  if (thinking !== undefined) thinking.lastElementChild.textContent = thought
  content.replaceChildren(...arranged(whole))
  if (tools.length > 0) content.append(element("pre", "", JSON.stringify(tools, undefined, 2)))
  if (problem === undefined) {
    const facts = element("div", "facts")
    const took = performance.now() - started
    const spoke = firstAt === undefined ? 0 : (performance.now() - firstAt) / 1000
    const out = tokensOut ?? pieces
    facts.append(
      element(
        "span",
        "",
        tokensIn === undefined ? `≈ ${number(out)} tokens out` : `${number(tokensIn)} in · ${number(out)} out`
      )
    )
    if (spoke > 0.05 && out > 1) facts.append(element("span", "", `${(out / spoke).toFixed(0)} tokens/s`))
    if (firstAt !== undefined) {
      facts.append(element("span", "", `first after ${span(firstAt - started)}, ${span(took)} in all`))
    }
    if (ended !== "stop")
      facts.append(element("span", "", ended === "length" ? "cut at the token limit" : ended))
    if (requestId) facts.append(idButton(requestId))
    turn.append(facts)
  } else {
    showProblem(turn, problem, () => {
      if (running !== undefined) return
      turn.remove()
      if (thread.at(-1)?.role === "assistant") thread.pop()
      void answer()
    })
  }
  if (whole !== "") thread.push({ role: "assistant", content: whole })
  if (follow) toBottom()
  if (running === stop) {
    running = undefined
    busy(false)
  }
  live.textContent = ""
  await refreshHeadroom()
}

const busy = (yes) => {
  sendButton.textContent = yes ? "Stop" : "Send"
  sendButton.classList.toggle("stop", yes)
}

const fit = () => {
  promptField.style.height = "auto"
  promptField.style.height = `${promptField.scrollHeight + 2}px`
}

const send = () => {
  const text = promptField.value.trim()
  if (running !== undefined || text === "") return
  if (modelField.value === "") {
    $("settings").open = true
    keyField.focus()
    if (keyField.value.trim() === "") note("A key comes first.", "bad")
    return
  }
  emptyState.hidden = true
  emptyState.remove()
  messages.push({ role: "user", content: text })
  const turn = element("article", "turn user")
  turn.append(element("div", "text", text))
  log.append(turn)
  promptField.value = ""
  fit()
  if (narrow.matches) $("settings").open = false
  void answer()
}

// ---- the same request as code

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

/** What would be sent now; before the first message and between turns, with what is being typed. */
const showCode = () => {
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

// ---- wiring

let typing
keyField.addEventListener("input", () => {
  clearTimeout(typing)
  typing = setTimeout(loadModels, 250)
})
$("reveal").addEventListener("click", (event) => {
  const shown = keyField.classList.toggle("shown")
  event.target.textContent = shown ? "Hide" : "Show"
  event.target.setAttribute("aria-pressed", String(shown))
})
const surfaceChanged = () => ($("surface-note").textContent = surfaces[surface()].note)
for (const radio of document.querySelectorAll("input[name=surface]"))
  radio.addEventListener("change", surfaceChanged)
surfaceChanged()
promptField.addEventListener("input", fit)
promptField.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
  event.preventDefault()
  send()
})
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("code").open) running?.abort()
})
sendButton.addEventListener("click", () => (running === undefined ? send() : running.abort()))
for (const idea of document.querySelectorAll(".ideas button")) {
  idea.addEventListener("click", () => {
    promptField.value = idea.textContent
    fit()
    promptField.focus()
  })
}
$("new-chat").addEventListener("click", () => {
  running?.abort()
  running = undefined
  busy(false)
  messages = []
  emptyState.hidden = false
  log.replaceChildren(emptyState)
  promptField.focus()
})
$("theme").addEventListener("click", () => {
  const root = document.documentElement
  const now =
    root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")
  root.style.colorScheme = now === "dark" ? "light" : "dark"
})
$("show-code").addEventListener("click", () => {
  showCode()
  $("code").showModal()
})
$("close-code").addEventListener("click", () => $("code").close())
$("code").addEventListener("click", (event) => {
  if (event.target === $("code")) $("code").close()
})
for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.addEventListener("click", () => {
    language = tab.dataset.language
    showCode()
  })
}
$("copy-code").addEventListener("click", (event) => copied(event.target, $("snippet").textContent))
