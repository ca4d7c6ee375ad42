/** The dialog with the request as code. */
import { conversation, requestOf } from "./conversation.js"
import { copyText } from "./copy.js"
import { languageOf, piecesOf } from "./highlight.js"
import { drawn } from "./codeBlock.js"
import { $, all } from "./dom.js"
import { surface } from "./parameters.js"
import { startDialog } from "./sheet.js"
import { needsOf, snippetOf, turnsFor } from "./snippets.js"
import { surfaces } from "./surfaces.js"

const tabs = all("[role=tab]")
const chosen = (name) => all(`input[name=${name}]:checked`)[0].value
let language = "curl"
let code = ""

const coloured = (text, name) => {
  let open
  return text.split("\n").flatMap((line) => {
    const read = piecesOf(languageOf(name), line, open)
    open = read.open
    return [...drawn(read.pieces), "\n"]
  })
}

const show = () => {
  const on = chosen("code-surface")
  const { path, body } = surfaces[on]
  const turns = turnsFor(chosen("code-scope"), conversation(), $("prompt").value.trim())
  const request = requestOf(turns)
  // Some options have another name on the other surface, so they are in the code of their own only.
  if (on !== surface()) request.options = {}
  code = snippetOf({ surface: on, language, origin: location.origin, path, body: body(request) })
  $("snippet").replaceChildren(...coloured(code.trimEnd(), language))
  $("code-needs").textContent = needsOf(on, language)
  for (const tab of tabs) {
    const selected = tab.dataset.language === language
    tab.setAttribute("aria-selected", String(selected))
    tab.tabIndex = selected ? 0 : -1
    if (selected) $("snippet").setAttribute("aria-labelledby", tab.id)
  }
}

$("show-code").addEventListener("click", () => {
  all(`input[name=code-surface][value=${surface()}]`)[0].checked = true
  show()
  $("code").showModal()
})
startDialog($("code"), $("close-code"))
$("code").addEventListener("change", show)
for (const [index, tab] of tabs.entries()) {
  tab.addEventListener("click", () => {
    language = tab.dataset.language
    show()
  })
  tab.addEventListener("keydown", ({ key }) => {
    const [before, after] = [index - 1, (index + 1) % tabs.length]
    const to = { ArrowLeft: before, ArrowUp: before, ArrowRight: after, ArrowDown: after, Home: 0, End: -1 }[
      key
    ]
    if (to === undefined) return
    const next = tabs.at(to)
    next.focus()
    next.click()
  })
}
$("copy-code").addEventListener("click", () => void copyText($("copy-code"), code, "Code copied"))
