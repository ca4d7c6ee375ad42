/** An error in the conversation: what happened, what to do, when to try again. */
import { copyText } from "./copy.js"
import { button, element } from "./dom.js"
import { duration } from "./figures.js"
import { explain } from "./problems.js"

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" })

/** Counts down, and says the time of day when it is long. `retry` can be pressed when the wait is over. */
const countDown = (note, retry, seconds) => {
  const until = performance.now() + seconds * 1000
  const at = seconds < 90 ? "" : `, at ${clock.format(Date.now() + seconds * 1000)}`
  const tick = () => {
    const left = (until - performance.now()) / 1000
    const text = left > 0 ? `Possible again in ${duration(left)}${at}` : "Possible again now"
    if (note.textContent !== text) note.textContent = text
    retry.disabled = left > 0
    if (left > 0 && note.isConnected) setTimeout(tick, left > 90 ? 5000 : Math.min(1000, left * 1000))
  }
  retry.disabled = true
  setTimeout(tick)
}

export const problemBox = (problem, retry) => {
  const { title, advice } = explain(problem)
  const box = element("div", "column problem", element("strong", "", title))
  if (problem.message) box.append(element("p", "said", problem.message))
  if (problem.hint) box.append(element("p", "said", problem.hint))
  box.append(element("p", "", advice))
  const again = button({ word: "Try again", className: "primary", press: retry })
  const row = element("div", "line row", again)
  if (problem.retryAfterS !== undefined) {
    const wait = element("span", "countdown")
    row.append(wait)
    countDown(wait, again, problem.retryAfterS)
  }
  if (problem.requestId) {
    const copy = button({
      word: "Copy request id",
      className: "quiet dotted",
      press: (pressed) => void copyText(pressed, problem.requestId, "Request id copied")
    })
    copy.title = problem.requestId
    row.append(copy)
  }
  const facts = [problem.status, problem.type].filter(Boolean).join(" · ")
  box.append(row, element("p", "fine", facts && `${facts} · `, problem.requestId ?? ""))
  return box
}
