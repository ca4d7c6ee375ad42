/** Block tokens to nodes. */
import { CodeBlock } from "./codeBlock.js"
import { element, group, withAttributes } from "./dom.js"
import { inline } from "./inline.js"

/** The text after the fence: the language, and perhaps more that does not matter here. */
export const labelOf = (token) => /^[\w+#.-]*/.exec(token.lang ?? "")[0]

const heading = (token, levels) => {
  // A level is never skipped, whatever the model writes: the page's own headings end at 3.
  levels.last = Math.min(6, token.depth + 3, levels.last + 1)
  return element(`h${levels.last}`, `h h${token.depth}`, ...inline(token.tokens))
}

const item = (token, levels) => {
  const made = element("li", token.task ? "task" : "")
  const [first, ...rest] = token.tokens
  // In a list without blank lines the box stands before the text it belongs to.
  const inners =
    first?.type === "checkbox"
      ? [{ type: "text", raw: "", tokens: [first, ...(rest[0]?.tokens ?? [])] }, ...rest.slice(1)]
      : token.tokens
  for (const inner of inners) {
    // With and without blank lines between the items it looks the same, so that nothing moves when one arrives.
    if (inner.type === "text" || inner.type === "paragraph")
      made.append(element("p", "", ...inline(inner.tokens ?? [inner])))
    else made.append(...blocks([inner], levels))
  }
  return made
}

const cells = (name, row) =>
  row.map((cell) => {
    const made = element(name, cell.align ?? "", ...inline(cell.tokens))
    if (name === "th") made.scope = "col"
    return made
  })

const builders = {
  space: () => [],
  def: () => [],
  hr: () => [element("hr")],
  heading: (token, levels) => [heading(token, levels)],
  paragraph: (token) => [element("p", "", ...inline(token.tokens))],
  text: (token) => [element("p", "", ...inline(token.tokens ?? [token]))],
  maths: (token) => [element("p", "maths", token.text)],
  plain: (token) => [element("p", "plain", token.raw.replace(/^\n+|\n+$/g, ""))],
  blockquote: (token, levels) => [element("blockquote", "", ...blocks(token.tokens, levels))],
  code: (token) => {
    const block = new CodeBlock(labelOf(token))
    block.show(token.text)
    return [block.node]
  },
  list: (token, levels) => {
    const made = element(token.ordered ? "ol" : "ul", "", ...token.items.map((entry) => item(entry, levels)))
    if (token.ordered && token.start !== "" && token.start !== 1) made.start = token.start
    return [made]
  },
  table: ({ header, rows }) => {
    const head = element("thead", "", element("tr", "", ...cells("th", header)))
    const body = element("tbody", "", ...rows.map((row) => element("tr", "", ...cells("td", row))))
    const table = element("div", "table", element("table", "", head, body))
    return [withAttributes(table, group("Table"))]
  }
}

export const blocks = (tokens, levels) =>
  tokens.flatMap((token) => (builders[token.type] ?? builders.plain)(token, levels))
