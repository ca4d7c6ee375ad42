/** A block of code: its language, a button that copies it, and lines that stay when more arrive. */
import { copyButton } from "./copy.js"
import { element, group, withAttributes } from "./dom.js"
import { languageOf, piecesOf } from "./highlight.js"

/** A browser lays out a group again when a line comes, not the whole block. */
const groupLines = 50

/** The nodes of the pieces of a line. */
export const drawn = (pieces) =>
  pieces.map(([text, kind]) => (kind === "" ? text : element("span", `t-${kind}`, text)))

export class CodeBlock {
  #code = element("code")
  #language
  #text = ""
  /** Characters of finished lines, what the last of them left open, and the nodes of the line that still grows. */
  #finished = 0
  #open
  #last = []
  #lines = 0
  #group

  constructor(label) {
    this.label = label
    this.#language = languageOf(label)
    const name = label === "" ? "Code" : `Code, ${label}`
    const body = withAttributes(element("pre", "", this.#code), group(name))
    const head = element("div", "line code-bar", element("span", "", label === "" ? "text" : label))
    head.append(copyButton("Copy code", () => this.#text))
    this.node = element("div", "sunken fence", head, body)
  }

  /** Whether `text` continues what is there. */
  continues(label, text) {
    return label === this.label && text.startsWith(this.#text.slice(0, this.#finished))
  }

  show(text) {
    if (text === this.#text) return
    this.#text = text
    for (const node of this.#last) node.remove()
    const lines = text.slice(this.#finished).split("\n")
    const last = lines.pop()
    for (const line of lines) {
      const { pieces, open } = piecesOf(this.#language, line, this.#open)
      this.#open = open
      this.#finished += line.length + 1
      this.#add([...drawn(pieces), "\n"])
      this.#lines += 1
    }
    this.#last = drawn(piecesOf(this.#language, last, this.#open).pieces).map((node) =>
      typeof node === "string" ? document.createTextNode(node) : node
    )
    if (last !== "") this.#add(this.#last)
  }

  #add(nodes) {
    if (this.#lines % groupLines === 0 && this.#group?.dataset.from !== String(this.#lines)) {
      this.#group = element("span", "lines")
      this.#group.dataset.from = String(this.#lines)
      this.#code.append(this.#group)
    }
    this.#group.append(...nodes)
  }
}
