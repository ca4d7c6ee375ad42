/** Shows a turn of the conversation: text, code, errors, facts. All of it is text nodes. */
import { element, log, narrow } from "./elements.js"

export const atBottom = () => {
  const box = narrow.matches ? document.scrollingElement : log
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80
}
export const toBottom = () => {
  const box = narrow.matches ? document.scrollingElement : log
  box.scrollTop = box.scrollHeight
}

export const copied = async (button, text) => {
  const before = button.textContent
  try {
    await navigator.clipboard.writeText(text)
  } catch {
    // Without a secure context there is no clipboard API, so it copies a selection.
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

export const idButton = (requestId) => {
  const button = element("button", "", requestId)
  button.type = "button"
  button.title = "Request id: copy"
  button.addEventListener("click", () => copied(button, requestId))
  return button
}

/** Splits at code fences; both kinds of pieces become text nodes. */
export const arranged = (text) =>
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

export const showProblem = (turn, problem, retry) => {
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
    const until = performance.now() + problem.retryAfterS * 1000
    const tick = () => {
      const left = Math.ceil((until - performance.now()) / 1000)
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

export const span = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`)

/** Text arrives faster than the screen is drawn, so it is shown once for each screen frame. */
export const painter = (paint) => {
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
