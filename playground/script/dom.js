// The playground: a client of the gateway like any other. The key lives in one input field and leaves it only as the
// Authorization header of requests to this same origin. What users and models write becomes text nodes, never markup.

/** The element with this id; any, because each has its own kind. @returns {any} */
export const $ = (id) => document.getElementById(id)

export const element = (name, className, ...children) => {
  const made = document.createElement(name)
  if (className) made.className = className
  made.append(...children)
  return made
}

export const icon = (name) => {
  const space = "http://www.w3.org/2000/svg"
  const picture = document.createElementNS(space, "svg")
  picture.setAttribute("class", "icon")
  picture.setAttribute("aria-hidden", "true")
  const use = document.createElementNS(space, "use")
  use.setAttribute("href", `#i-${name}`)
  picture.append(use)
  return picture
}

/**
 * A button with a word, an icon, or both; an icon alone needs `label`.
 *
 * @param {{ label?: string, word?: string, name?: string, className?: string, press: (pressed: HTMLElement) => void }} parts
 */
export const button = ({ label, word, name, className = "", press }) => {
  const made = element("button", className, ...(name ? [icon(name)] : []), ...(word ? [word] : []))
  made.type = "button"
  if (label) {
    made.setAttribute("aria-label", label)
    made.title = label
  }
  made.addEventListener("click", () => press(made))
  return made
}

/** @returns {any[]} */
export const all = (selector) => [...document.querySelectorAll(selector)]

export const narrow = matchMedia("(max-width: 860px)")
export const touch = matchMedia("(pointer: coarse)")
