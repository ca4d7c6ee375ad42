/**
 * Shows markdown that is still coming. A complete block is built once and never touched again. What has not changed of the
 * last one stays too, so that a reader can select it.
 */
import { blocks, labelOf } from "./blocks.js"
import { CodeBlock } from "./codeBlock.js"
import { element } from "./dom.js"
import { maxBlock, settledEnd, tokensOf } from "./markdown.js"

/** Most characters that one screen frame reads, so that no frame takes long. */
const maxStep = 1024

const innermost = (token) =>
  token?.type === "list"
    ? innermost(token.items.at(-1)?.tokens.at(-1))
    : token?.type === "blockquote"
      ? innermost(token.tokens.at(-1))
      : token

const lengthOf = (tokens) => tokens.reduce((sum, { raw }) => sum + raw.length, 0)

/** Whether they are equal but for what is in them. A button that copies code belongs to the text of its block. */
const alike = (one, other) =>
  one instanceof Element &&
  other instanceof Element &&
  !other.matches(".fence") &&
  one.cloneNode(false).isEqualNode(other.cloneNode(false))

/** Puts what `made` has into `node`. What both have at their beginning stays. */
const update = (node, made) => {
  let [at, next] = [node.firstChild, made.firstChild]
  while (at !== null && next !== null && at.isEqualNode(next)) [at, next] = [at.nextSibling, next.nextSibling]
  if (alike(at, next)) {
    update(at, next)
    ;[at, next] = [at.nextSibling, next.nextSibling]
  }
  for (; at !== null; [at] = [at.nextSibling, at.remove()]);
  for (; next !== null; [next] = [next.nextSibling, node.append(next)]);
}

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

  #read(final) {
    const source = this.#text.slice(this.#settled, this.#shown)
    const tokens = tokensOf(source, this.#links)
    if (final || innermost(tokens.at(-1))?.type === "code") return tokens
    const end = settledEnd(source)
    return end === source ? tokens : tokensOf(end, this.#links)
  }

  #draw(final) {
    const full = this.#shown - this.#settled > maxBlock
    const tokens = this.#read(final || full)
    const [before, level] = [this.#tail, { last: this.#level }]
    this.#tail = tokens.map((token, index) => this.#entry(token, before[index], level))
    const changed = this.#tail.findIndex(({ node }, index) => node !== before[index]?.node)
    const first = changed === -1 ? tokens.length : changed
    for (const { node } of before.slice(first)) node?.remove()
    this.node.append(...this.#tail.slice(first).flatMap(({ node }) => node ?? []))
    if (!final) this.#settle(tokens, full)
  }

  /** The node of a block. It takes over what has not changed of the block that stood there before. */
  #entry(token, was, level) {
    const { type, raw } = token
    if (was?.type === type && was.raw === raw) {
      level.last = was.level
      return was
    }
    if (type === "code") {
      const label = labelOf(token)
      const code = was?.code?.continues(label, token.text) ? was.code : new CodeBlock(label)
      code.show(token.text)
      return { type, raw, code, node: code.node, level: level.last }
    }
    let [node] = blocks([token], level)
    if (was?.type === type && alike(was.node, node)) {
      update(was.node, node)
      node = was.node
    }
    return { type, raw, node, level: level.last }
  }

  /** Every block but the last is complete. */
  #settle(tokens, full) {
    let last = tokens.length - 1
    while (last > 0 && tokens[last].type === "space") last -= 1
    if (last > 0) {
      for (const { type, tag, href, title } of tokens.slice(0, last))
        if (type === "def") this.#links[tag] ??= { href, title }
      this.#settled += lengthOf(tokens.slice(0, last))
      this.#level = this.#tail[last - 1].level
      this.#tail = this.#tail.slice(last)
    }
    const [block] = this.#tail
    if (!full || block === undefined || block.type === "code" || this.#shown - this.#settled <= maxBlock)
      return
    const items = tokens[last].items ?? []
    // A long list goes on as another one, which begins with the item that is not complete.
    if (items.length > 1) block.node.lastChild.remove()
    this.#settled = items.length > 1 ? this.#settled + lengthOf(items.slice(0, -1)) : this.#shown
    this.#tail = []
  }
}
