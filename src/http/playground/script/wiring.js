/** Connects the controls of the page. */
import { fit, newChat, send, sendOrStop, stop } from "./chat.js"
import { $, keyField, promptField, sendButton } from "./elements.js"
import { loadModels } from "./models.js"
import { showCode, speak } from "./snippets.js"
import { surface, surfaces } from "./surfaces.js"
import { copied } from "./turns.js"

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
  if (event.key === "Escape" && !$("code").open) stop()
})
sendButton.addEventListener("click", sendOrStop)
for (const idea of document.querySelectorAll(".ideas button")) {
  idea.addEventListener("click", () => {
    promptField.value = idea.textContent
    fit()
    promptField.focus()
  })
}
$("new-chat").addEventListener("click", newChat)
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
  tab.addEventListener("click", () => speak(tab.dataset.language))
}
$("copy-code").addEventListener("click", (event) => copied(event.target, $("snippet").textContent))
