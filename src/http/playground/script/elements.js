// The playground: a client of the gateway like any other. The key lives in one variable and leaves it only as the
// Authorization header of requests to this same origin; whatever users and models say is only ever a text node.
export const $ = (id) => document.getElementById(id)
export const [keyField, keyNote, modelField, promptField, log, sendButton, live] = [
  "key",
  "key-note",
  "model",
  "prompt",
  "log",
  "send",
  "live"
].map($)

export const element = (name, className, text) => {
  const made = document.createElement(name)
  if (className) made.className = className
  if (text !== undefined) made.textContent = text
  return made
}
export const number = (value) => value.toLocaleString("en-US")
export const narrow = matchMedia("(max-width: 820px)")
