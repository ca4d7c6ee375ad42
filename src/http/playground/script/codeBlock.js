/** A block of code: its language, a button that copies it, and lines that stay when more arrive. */
import { copyButton } from "./copy.js"
import { element } from "./dom.js"
import { languageOf, piecesOf } from "./highlight.js"

const drawn = (pieces) =>
  pieces.map(([text, kind]) => (kind === "" ? text : element("span", `t-${kind}`, text)))

export class CodeBlock {
  #code = element("code")
  #language
  #text = ""
  /** Characters of finished lines, what the last of them left open, and the nodes of the line that still grows. */
  #finished = 0
  #open
  #last = []

  constructor(label) {
    this.label = label
    this.#language = languageOf(label)
    const body = element("pre", "", this.#code)
    body.tabIndex = 0
    body.setAttribute("role", "group")
    body.setAttribute("aria-label", label === "" ? "Code" : `Code, ${label}`)
    const head = element("div", "code-bar", element("span", "", label === "" ? "text" : label))
    head.append(copyButton("Copy code", () => this.#text))
    this.node = element("div", "fence", head, body)
  }

  /** Whether `text` continues what is there. */
  continues(label, text) {
    return label === this.label && text.startsWith(this.#text.slice(0, this.#finished))
  }

  show(text) {
    if (text === this.#text) return
    this.#text = text
    for (const node of this.#last) node.remove()
    const nodes = []
    const lines = text.slice(this.#finished).split("\n")
    const last = lines.pop()
    for (const line of lines) {
      const { pieces, open } = piecesOf(this.#language, line, this.#open)
      this.#open = open
      this.#finished += line.length + 1
      nodes.push(...drawn(pieces), "\n")
    }
    this.#code.append(...nodes)
    this.#last = drawn(piecesOf(this.#language, last, this.#open).pieces).map((node) =>
      typeof node === "string" ? document.createTextNode(node) : node
    )
    this.#code.append(...this.#last)
  }
}
