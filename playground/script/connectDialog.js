/** The dialog with the settings of programs: what `tollgate connect` prints for this gateway. */
import { notServed, outputIn, smallestWindow, tooSmall } from "../../cli/connect/Client.ts"
import { clients } from "../../cli/connect/clients.ts"
import { printed } from "../../cli/connect/texts.ts"
import { copyText } from "./copy.js"
import { $ } from "./dom.js"
import { MarkdownView } from "./MarkdownView.js"
import { contextOf } from "./models.js"
import { startDialog } from "./sheet.js"

const { outputCap, surfaces } = document.body.dataset
const served = new Set(["chat", ...surfaces.split(" ")])
let text = ""

/** What may not work, first. */
const notesOf = (client, facts, isKnown) => [
  ...(served.has(client.surface) ? [] : [`${notServed(client)}.`]),
  ...(isKnown ? [] : [`The context window is not known, so ${smallestWindow} is assumed.`]),
  ...[tooSmall(client, facts)].filter(Boolean).map((warning) => `Here ${warning}.`),
  ...client.notes
]

const show = () => {
  const client = clients.find(({ name }) => name === $("program").value)
  const [model, known] = [$("model").value, contextOf($("model").value)]
  const window = known ?? smallestWindow
  const facts = {
    url: location.origin,
    model: model || "<model>",
    window,
    output: outputIn(window, Number(outputCap))
  }
  text = printed(client, facts)
  $("connect-text").textContent = text
  const notes = new MarkdownView()
  notes.push(
    notesOf(client, facts, known !== undefined)
      .map((note) => `- ${note}\n`)
      .join("")
  )
  while (notes.step(true));
  $("connect-notes").replaceChildren(notes.node)
}

$("program").append(...clients.map(({ name, title }) => new Option(title, name)))
$("program").addEventListener("change", show)
$("show-connect").addEventListener("click", () => {
  show()
  $("connect").showModal()
})
startDialog($("connect"), $("close-connect"))
$("copy-connect").addEventListener("click", () => void copyText($("copy-connect"), text, "Settings copied"))
