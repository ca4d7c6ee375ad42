/** Buttons that copy. */
import { all, button, element, icon } from "./dom.js"
import { announce } from "./announce.js"

const write = async (text) => {
  try {
    await navigator.clipboard.writeText(text)
  } catch {
    // Without a secure context there is no clipboard API, so it copies a selection.
    const area = element("textarea")
    area.value = text
    /** @type {any} */
    const focused = document.activeElement
    // Of several dialogs the last one is above the others.
    const place = all("dialog:modal").at(-1) ?? document.body
    place.append(area)
    area.select()
    document.execCommand("copy")
    area.remove()
    focused?.focus()
  }
}

const shown = new Set()
/** The button says so for a moment: with its icon, or with its word. */
export const copyText = async (pressed, text, what = "Copied") => {
  await write(text)
  announce(what)
  if (shown.has(pressed)) return
  shown.add(pressed)
  const before = [...pressed.childNodes]
  pressed.replaceChildren(pressed.classList.contains("only") ? icon("done") : "Copied")
  setTimeout(() => {
    pressed.replaceChildren(...before)
    shown.delete(pressed)
  }, 1200)
}

export const copyButton = (label, textOf) =>
  button({
    label,
    name: "copy",
    className: "quiet only",
    press: (pressed) => void copyText(pressed, textOf())
  })
