/** Markdown to tokens: marked reads it, and our bounds keep a hostile text from taking long. Without the page. */
import { Lexer, Marked } from "marked"

/** A longer paragraph is shown as it was written: some texts take time that grows with the square of their length. */
export const maxInline = 6000
/** A longer block that is neither code nor a table is shown as it was written. */
export const maxBlock = 12_000
/** Deeper quotes and lists are shown as they were written. */
const tooDeep = /^[ \t]*(?:>[ \t]*|(?:[*+-]|\d{1,9}[.)])[ \t]+){10}/m
const tooIndented = /^[ \t]{40,}(?:[*+-]|\d{1,9}[.)])[ \t]/m

/**
 * Maths stays as it was written: its signs are no emphasis and no escapes.
 *
 * @returns {import("marked").TokenizerExtension}
 */
const maths = (level, begins, whole) => ({
  name: `${level} maths`,
  level,
  start: (text) => text.search(begins),
  tokenizer: (text) => {
    const [raw] = whole.exec(text) ?? []
    return raw === undefined ? undefined : { type: "maths", raw, text: raw.trim() }
  }
})
const { defaults } = new Marked({
  extensions: [
    maths(
      "inline",
      /\\[([]|\$/,
      /^(?:\\\([^\n]{1,1000}?\\\)|\\\[[^]{1,2000}?\\\]|\$\$[^]{1,2000}?\$\$|\$(?![\s\d$])[^\n$]{1,300}?(?<!\s)\$(?!\d))/
    ),
    maths(
      "block",
      /\n {0,3}(?:\\\[|\$\$)/,
      /^ {0,3}(?:\\\[[^]{1,4000}?\\\]|\$\$[^]{1,4000}?\$\$)[ \t]*(?:\n|$)/
    )
  ]
})

const plain = (raw) => ({ type: "plain", raw, text: raw })

/**
 * Blocks with their inline tokens. `links` has the reference links that earlier blocks defined.
 *
 * @returns {Array<{ type: string, raw: string, tokens?: Array<{ type: string, raw: string }>, [name: string]: any }>}
 */
export const tokensOf = (text, links = {}) => {
  if (tooDeep.test(text) || tooIndented.test(text)) return [plain(text)]
  try {
    const lexer = new Lexer(defaults)
    Object.assign(lexer.tokens.links, links)
    lexer.blockTokens(text, lexer.tokens)
    for (const { src, tokens } of lexer.inlineQueue) {
      if (src.length > maxInline) tokens.push({ type: "text", raw: src, text: src })
      else lexer.inlineTokens(src, tokens)
    }
    return [...lexer.tokens]
  } catch {
    // A text that marked cannot read is shown as it was written.
    return [plain(text)]
  }
}

/** A last line that has no words yet: what it will be is not known, so it is not shown. */
const undecided =
  /(?:^|\n)[ \t]*(?:[`~]{1,3}[\w+#-]*|#{1,6}|[-+*_=]{1,3}|\d{1,9}[.)]?|>[> \t]*|[-+*][ \t]+(?:\[[ x]?\]?)?|\d{1,9}[.)][ \t]+|\|[^\n]*|\\\[?|\$\$?)[ \t]*$/

/** A table is one when its second line is there. */
const tableBegun = /(?:^|\n)[ \t]*\|[^\n]*(?:\n[ \t]*\|?[ \t:|-]*)?$/

const closed = (line) => {
  let text = line.replace(/!?\[([^\][\n]*)\]\([^()\s]*$/, "$1")
  const withoutCode = text.replaceAll(/(`+)[^`]*\1(?!`)/g, "")
  if (withoutCode.includes("`")) return text.endsWith("`") ? text.replace(/`+$/, "") : `${text}\``
  for (const mark of ["**", "~~", "*"]) {
    const found = withoutCode.replaceAll(mark === "*" ? "**" : "\0", "").split(mark).length - 1
    if (found % 2 === 0) continue
    if (text.endsWith(mark)) text = text.slice(0, -mark.length)
    else if (new RegExp(`(?:^|[^\\w*])${mark.replaceAll("*", String.raw`\*`)}(?=[^\\s*])`).test(text))
      text = text.replace(/\s*$/, (space) => `${mark}${space}`)
  }
  return text
}

/** A text that is still coming, so that its end is shown as what it is about to be: without marks that are not closed. */
export const settledEnd = (text) => {
  const begun = tableBegun.exec(text)
  const before = begun === null ? "" : text.slice(0, begun.index)
  if (begun !== null && (before === "" || before.endsWith("\n"))) return before
  const shown = text.replace(undecided, "")
  const at = shown.lastIndexOf("\n") + 1
  return shown.slice(0, at) + closed(shown.slice(at))
}
