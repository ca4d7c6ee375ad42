/** The conversation and the running answer. */
import {
  $,
  element,
  keyField,
  live,
  log,
  modelField,
  narrow,
  number,
  promptField,
  sendButton
} from "./elements.js"
import { refreshHeadroom, showHeadroom } from "./headroom.js"
import { note } from "./models.js"
import { ask, problemOf, surface, surfaces } from "./surfaces.js"
import { arranged, atBottom, idButton, painter, showProblem, span, toBottom } from "./turns.js"

const emptyState = $("empty")

/** The conversation as the models see it, without the system prompt. */
let messages = []
/** Ends the running answer; undefined when there is none. */
let running

export const conversation = () => {
  const system = $("system").value.trim()
  return system === "" ? messages : [{ role: "system", content: system }, ...messages]
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

export const fit = () => {
  promptField.style.height = "auto"
  promptField.style.height = `${promptField.scrollHeight + 2}px`
}

export const send = () => {
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

export const stop = () => running?.abort()
export const sendOrStop = () => (running === undefined ? send() : stop())

export const newChat = () => {
  stop()
  running = undefined
  busy(false)
  messages = []
  emptyState.hidden = false
  log.replaceChildren(emptyState)
  promptField.focus()
}
