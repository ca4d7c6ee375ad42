/** Follows the end of the conversation, as long as the reader is there. */
import { $ } from "./dom.js"

const log = $("log")
/** On a screen that is not high the whole page scrolls. */
const box = () => (getComputedStyle(log).overflowY === "visible" ? document.scrollingElement : log)
export const atEnd = () => {
  const { scrollHeight, scrollTop, clientHeight } = box()
  return scrollHeight - scrollTop - clientHeight < 80
}

export const toEnd = () => {
  box().scrollTop = box().scrollHeight
  $("latest").hidden = true
}

const look = () => {
  $("latest").hidden = atEnd()
}
log.addEventListener("scroll", look, { passive: true })
document.addEventListener("scroll", look, { passive: true })
$("latest").addEventListener("click", () => {
  toEnd()
  $("prompt").focus()
})
