/**
 * Colours for code, one line at a time, so that a growing block never has to be read again. What a line leaves open (a
 * comment, a long string) is carried into the next one.
 */
const c = ["//", "/*", "*/"]
const hash = ["#"]
const js =
  "as async await break case catch class const continue default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null of private public readonly return set static super switch this throw true try type typeof undefined var void while yield"
const java =
  "abstract boolean break byte case catch char class const continue default do double else enum extends false final finally float for foreach if implements import in instanceof int interface internal is long namespace new null object override package private protected public return sealed short static string struct super switch this throw throws true try using var virtual void volatile when while"
const cpp =
  "auto bool break case char class const constexpr continue default delete do double else enum extern false float for friend goto if include inline int long namespace new nullptr operator private protected public return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void while"
const go =
  "break case chan const continue default defer else fallthrough false for func go if import interface map nil package range return select string struct switch true type var bool byte error int int64 float64"
const rust =
  "as async await bool break const continue crate else enum extern false fn for i32 i64 if impl in let loop match mod move mut pub ref return self Self static str struct super trait true type u32 u64 u8 unsafe use usize where while"
const py =
  "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield"
const sh =
  "case do done elif else esac export fi for function if in local read return set then until while echo cd sudo npm npx pip docker git curl"
const sql =
  "add all alter and as asc between by case create delete desc distinct drop else end exists from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references right select set table then union unique update values view when where with"
const ruby =
  "begin break case class def do else elsif end ensure false for if in module next nil not or raise require rescue return self super then true unless until when while yield"

const fieldName = String.raw`"(?:[^"\\]|\\.)*"(?=\s*:)|(?<![\w"-])[\w-]+(?=\s*:(?:\s|$))`
const tag = String.raw`</?[\w:-]+|/?>`

/** By the labels that models write. @type {any[]} */
const languages = [
  { labels: "js javascript jsx ts tsx typescript mjs", comment: c, long: ["`"], words: js },
  { labels: "java kotlin cs csharp c# scala swift dart php", comment: c, words: java },
  { labels: "cpp c h c++", comment: c, words: cpp },
  { labels: "go golang", comment: c, long: ["`"], words: go },
  { labels: "rust rs", comment: c, words: rust, quotes: '"' },
  { labels: "py python python3", comment: hash, long: ['"""', "'''"], words: py },
  { labels: "sh bash shell zsh console dockerfile curl", comment: hash, words: sh },
  { labels: "yaml yml toml ini", comment: hash, words: "true false null", key: fieldName },
  { labels: "json jsonc", comment: [], words: "true false null", key: fieldName },
  { labels: "sql", comment: ["--", "/*", "*/"], words: sql, folded: true },
  { labels: "ruby rb", comment: hash, words: ruby },
  { labels: "css scss less", comment: ["", "/*", "*/"], words: "important", key: fieldName },
  { labels: "html xml svg vue", comment: ["", "<!--", "-->"], words: "", key: tag }
]

const compile = ({ comment, folded, key = "(?!)", long = [], quotes = "\"'", words }) => {
  const [line, open, close] = comment
  const quoted = [...quotes].map((q) => `${q}(?:[^${q}\\\\]|\\\\.)*(?:${q}|$)`).join("|")
  const starts = [...long, ...(open ? [open] : [])].map((mark) => RegExp.escape(mark)).join("|")
  return {
    ends: Object.fromEntries([...long.map((mark) => [mark, mark]), ...(open ? [[open, close]] : [])]),
    comment: open,
    words: new Set(words.split(" ")),
    folded,
    pattern: new RegExp(
      [
        `(?<long>${starts || "(?!)"})`,
        `(?<comment>${line ? `${line === "#" ? "(?<![^\\s])#" : RegExp.escape(line)}.*` : "(?!)"})`,
        `(?<key>${key})`,
        `(?<string>${quoted})`,
        String.raw`(?<number>\b\d[\w.]*)`,
        String.raw`(?<call>[\p{L}_$][\p{L}\p{N}_$]*(?=\())`,
        String.raw`(?<word>[\p{L}_$][\p{L}\p{N}_$]*)`
      ].join("|"),
      "gu"
    )
  }
}

const compiled = new Map(
  languages.flatMap((language) => {
    const made = compile(language)
    return language.labels.split(" ").map((label) => [label, made])
  })
)
export const languageOf = (label) => compiled.get(label.toLowerCase())

/** Longer lines are data, not code, and stay without colours. */
const maxLine = 2000

const kindOf = (language, { call, comment, key, number, string, word = call }) => {
  if (comment !== undefined) return "c"
  if (string !== undefined) return "s"
  if (number !== undefined) return "n"
  if (key !== undefined || language.words.has(language.folded ? word.toLowerCase() : word)) return "k"
  if (call !== undefined) return "f"
  return /^\p{Lu}[\p{L}\p{N}]*\p{Ll}/u.test(word) ? "t" : ""
}

/**
 * The pieces of a line as `[text, kind]`, and what stays open after it. Kinds: c comment, s string, k keyword, n number,
 * f function, t type, and "" for the rest.
 */
export const piecesOf = (language, line, open) => {
  if (language === undefined || line.length > maxLine) return { pieces: [[line, ""]], open }
  const pieces = []
  const add = (text, kind) => {
    if (text !== "") pieces.push([text, kind])
  }
  let [at, inside] = [0, 0]
  for (;;) {
    if (open !== undefined) {
      const close = language.ends[open]
      const end = line.indexOf(close, inside)
      const stop = end === -1 ? line.length : end + close.length
      add(line.slice(at, stop), open === language.comment ? "c" : "s")
      if (end === -1) return { pieces, open }
      open = undefined
      at = stop
    }
    language.pattern.lastIndex = at
    const match = language.pattern.exec(line)
    add(line.slice(at, match?.index), "")
    if (match === null) return { pieces, open }
    at = match.index
    open = match.groups.long
    if (open === undefined) {
      add(match[0], kindOf(language, match.groups))
      at += match[0].length
    } else inside = at + open.length
  }
}
