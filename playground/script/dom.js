// The playground: a client of the gateway like any other. The key lives in one input field and leaves it only as the
// Authorization header of requests to this same origin. What users and models write becomes text nodes, never markup.
import { filled, icons } from "./icons.js"

/** The element with this id; any, because each has its own kind. @returns {any} */
export const $ = (id) => document.getElementById(id)

export const element = (name, className, ...children) => {
  const made = document.createElement(name)
  if (className) made.className = className
  made.append(...children)
  return made
}

/** The same element, with these attributes. */
export const withAttributes = (made, attributes) => {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  return made
}

/** The attributes of a part that scrolls by itself, so the keyboard must reach it. */
export const group = (label) => ({ tabindex: "0", role: "group", "aria-label": label })

const vector = (name, attributes) =>
  withAttributes(document.createElementNS("http://www.w3.org/2000/svg", name), attributes)

export const icon = (name) => {
  const picture = vector("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" })
  const fill = filled.includes(name) ? { fill: "currentColor", "fill-rule": "evenodd" } : {}
  picture.append(vector("path", { d: icons[name], ...fill }))
  return picture
}

/**
 * A button with a word, an icon, or both; an icon alone needs `label`.
 *
 * @param {{ label?: string, word?: string, name?: string, className?: string, press: (pressed: HTMLElement) => void }} parts
 */
export const button = ({ label, word, name, className = "", press }) => {
  const made = element("button", className, ...(name ? [icon(name)] : []), ...(word ? [word] : []))
  if (label) withAttributes(made, { "aria-label": label, title: label })
  made.addEventListener("click", () => press(made))
  return made
}

/** @returns {any[]} */
export const all = (selector) => [...document.querySelectorAll(selector)]

export const narrow = matchMedia("(max-width: 860px)")
export const touch = matchMedia("(pointer: coarse)")

/** What scrolls: on a screen that is not high, the whole page. */
const box = () => (getComputedStyle($("log")).overflowY === "visible" ? document.scrollingElement : $("log"))
/** Whether the reader is at the end of the conversation, so that the page follows it. */
export const atEnd = () => {
  const { scrollHeight, scrollTop, clientHeight } = box()
  return scrollHeight - scrollTop - clientHeight < 80
}

export const toEnd = () => {
  box().scrollTop = box().scrollHeight
}
