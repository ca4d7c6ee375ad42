/**
 * Shows markdown that is still coming. A complete block is built once and never touched again. Of the last block, finished
 * items of a list, rows of a table and lines of code stay as well.
 */
import { blocks, itemsOf, labelOf, listOf, rowsOf, tableOf } from "./blocks.js"
import { CodeBlock } from "./codeBlock.js"
import { element } from "./dom.js"
import { maxBlock, settledEnd, tokensOf } from "./markdown.js"

/** Most characters that one screen frame reads, so that no frame takes long. */
const maxStep = 1024

const markOf = (token) => (token.ordered ? "1" : token.raw.trimStart().charAt(0))
const headOf = (token) => `${token.raw.split("\n", 2).join("\n")}\n`

const innermost = (token) =>
  token?.type === "list"
    ? innermost(token.items.at(-1)?.tokens.at(-1))
    : token?.type === "blockquote"
      ? innermost(token.tokens.at(-1))
      : token

const lengthOf = (tokens) => tokens.reduce((sum, { raw }) => sum + raw.length, 0)

export class MarkdownView {
  node = element("div", "md")
  #text = ""
  /** How much of the text is shown, and how much of that is complete. */
  #shown = 0
  #settled = 0
  #links = {}
  #level = 3
  /** The blocks that may still change; their nodes are the last ones. */
  #tail = []
  /** The list or table at the beginning of the tail whose first parts are settled. */
  #open

  push(text) {
    this.#text += text.replaceAll("\r", "")
  }

  /** Shows the next part of what has come; true when something is left. */
  step(ended) {
    this.#shown = Math.min(this.#text.length, this.#shown + maxStep)
    const whole = this.#shown === this.#text.length
    this.#draw(ended && whole)
    return !whole
  }

  get #source() {
    return this.#text.slice(this.#settled, this.#shown)
  }

  #read(final) {
    const [head, source] = [this.#open?.head ?? "", this.#source]
    const tokens = tokensOf(head + source, this.#links)
    if (final || innermost(tokens.at(-1))?.type === "code") return tokens
    const end = settledEnd(source)
    return end === source ? tokens : tokensOf(head + end, this.#links)
  }

  #goesOn(token) {
    const { type, mark, head } = this.#open
    return token?.type === type && (type === "list" ? markOf(token) === mark : headOf(token) === head)
  }

  #draw(final) {
    const full = this.#shown - this.#settled > maxBlock
    let tokens = this.#read(final || full)
    if (this.#open !== undefined && tokens.length > 0 && !this.#goesOn(tokens[0])) {
      for (const { node } of this.#tail[0]?.parts ?? []) node.remove()
      for (const { node } of this.#tail.slice(1)) node?.remove()
      this.#tail = []
      this.#open = undefined
      tokens = this.#read(final || full)
    }
    this.#build(tokens)
    if (!final) this.#settle(tokens, full)
  }

  #build(tokens) {
    const before = this.#tail
    let [same, level] = [true, { last: this.#level }]
    this.#tail = tokens.map((token, index) => {
      const was = same ? before[index] : undefined
      const entry = this.#entry(token, was, level)
      if (same && entry.node !== was?.node) {
        same = false
        for (const { node } of before.slice(index)) node?.remove()
      }
      if (!same && entry.node !== undefined) this.node.append(entry.node)
      return { ...entry, level: level.last }
    })
    if (same) for (const { node } of before.slice(tokens.length)) node?.remove()
  }

  /** The node of a block. It takes over what has not changed of the block that stood there before. */
  #entry(token, was, level) {
    const { type, raw } = token
    if (was?.type === type && was.raw === raw && was.parts === undefined) {
      level.last = was.level
      return was
    }
    if (type === "code") {
      const label = labelOf(token)
      const code = was?.code?.continues(label, token.text) ? was.code : new CodeBlock(label)
      code.show(token.text)
      return { type, raw, code, node: code.node }
    }
    if (type === "list") {
      const mark = markOf(token)
      const same = was?.type === type && was.mark === mark
      const node = same ? was.node : listOf(token)
      return { type, raw, mark, node, parts: this.#parts(node, same ? was.parts : [], itemsOf(token, level)) }
    }
    if (type === "table") {
      const head = headOf(token)
      const same = was?.type === type && was.head === head
      const { box, body } = same ? { box: was.node, body: was.body } : tableOf(token)
      return {
        type,
        raw,
        head,
        body,
        node: box,
        parts: this.#parts(body, same ? was.parts : [], rowsOf(token))
      }
    }
    return { type, raw, node: blocks([token], level)[0] }
  }

  #parts(parent, before, entries) {
    const changed = entries.findIndex(({ raw }, index) => before[index]?.raw !== raw)
    const kept = before.slice(0, changed === -1 ? entries.length : changed)
    for (const { node } of before.slice(kept.length)) node.remove()
    const made = entries.slice(kept.length).map(({ raw, make }) => ({ raw, node: make() }))
    parent.append(...made.map(({ node }) => node))
    return [...kept, ...made]
  }

  /** Every block but the last is complete, and of a list or table every part but the last. */
  #settle(tokens, full) {
    let last = tokens.length - 1
    while (last > 0 && tokens[last].type === "space") last -= 1
    if (last < 0) return
    if (last > 0) {
      for (const { type, tag, href, title } of tokens.slice(0, last))
        if (type === "def") this.#links[tag] ??= { href, title }
      this.#settled += lengthOf(tokens.slice(0, last)) - (this.#open?.head?.length ?? 0)
      this.#level = this.#tail[last - 1].level
      this.#tail = this.#tail.slice(last)
      this.#open = undefined
    }
    const [token, entry] = [tokens[last], this.#tail[0]]
    if (entry.parts?.length > 1) {
      const complete =
        entry.type === "list"
          ? lengthOf(token.items.slice(0, -1))
          : token.raw.trimEnd().lastIndexOf("\n") + 1 - (this.#open?.head?.length ?? 0)
      this.#settled += complete
      this.#open = { type: entry.type, mark: entry.mark, head: entry.head }
      entry.parts = entry.parts.slice(-1)
    }
    if (full && entry.type !== "code" && this.#shown - this.#settled > maxBlock) {
      this.#settled = this.#shown
      this.#tail = []
      this.#open = undefined
    }
  }
}
