/** Connects what belongs to no other script. Each script connects its own controls when it is loaded. */
import { conversation, fit, newChat, send, sendOrStop, stop, usedBytes } from "./conversation.js"
import "./codeDialog.js"
import "./connectDialog.js"
import { $, all, icon, narrow } from "./dom.js"
import "./exporting.js"
import { MarkdownView } from "./MarkdownView.js"
import { showImageButton, startImages } from "./images.js"
import { can, onModel } from "./models.js"
import { showParameters, surface } from "./parameters.js"
import { surfaces } from "./surfaces.js"
import "./theme.js"

for (const place of all("[data-icon]")) {
  place.prepend(icon(place.dataset.icon))
  place.title ||= place.ariaLabel ?? ""
}
startImages(usedBytes)

const surfaceChanged = () => {
  $("surface-note").textContent = surfaces[surface()].note
  showParameters(can("thinking"))
}
onModel(() => {
  showImageButton()
  showParameters(can("thinking"))
})
for (const radio of all("input[name=surface]")) radio.addEventListener("change", surfaceChanged)
surfaceChanged()

$("prompt").addEventListener("input", fit)
$("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
  event.preventDefault()
  send()
})
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.querySelector("dialog:modal") === null) stop()
})
$("send").addEventListener("click", sendOrStop)
for (const idea of all(".ideas button")) {
  idea.addEventListener("click", () => {
    $("prompt").value = idea.lastElementChild.textContent
    fit()
    send()
  })
}
$("new-chat").addEventListener("click", newChat)
// The conversation ends with the page, so the browser asks first.
window.addEventListener("beforeunload", (event) => {
  if (conversation().length > 0) event.preventDefault()
})
// On a phone the keyboard would cover what the page is about.
if (!narrow.matches) $("key").focus()

/** The browser compiles the parser at its first use, so that is not left to the first answer. */
setTimeout(() => {
  const view = new MarkdownView()
  view.push("- a **b** `c`\n\n| d |\n|---|\n| e |\n\n```js\nf(1)\n```\n\n> g\n")
  view.step(true)
}, 200)
