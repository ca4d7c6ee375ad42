/**
 * Rewrites a regular expression of a schema for the grammar of the model server: literals, character classes, groups,
 * alternatives and bounded repetition, from `^` to `$`. An expression that the grammar cannot express, such as a
 * lookahead or `\b`, is left out: some of them crash the main process of the server.
 */
import { schemaBounds } from "./bounds.ts"

/**
 * Character classes in the escapes of the grammar. A JSON string contains no unescaped quote, backslash or control
 * character.
 */
const outsideOfStrings = String.raw`"\\\x7F\x00-\x1F`

const classEscapes: Readonly<Record<string, string>> = { d: "0-9", w: "A-Za-z0-9_", s: " " }
const negatedEscapes: Readonly<Record<string, string>> = { D: "0-9", W: "A-Za-z0-9_", S: " " }

/** Characters that stand for themselves, alone and in brackets. */
const plain = /^[A-Za-z0-9 _@:/,;!#%&'=~<>`\u00a1-\ud7ff\ue000-\ufffd]$/
/** Special characters of an expression. After a backslash or in brackets they mean themselves. */
const special = /^[.*+?(){}|$/-]$/

interface Piece {
  readonly text: string
  /** whether it matches the empty text: unbounded repetition would then be a loop in the grammar */
  readonly nullable: boolean
}

const nothing: Piece = { text: "", nullable: true }

/**
 * A recursive descent parser over a text of bounded length. It stops at the first part that the grammar cannot
 * express.
 */
class PatternReader {
  #at = 0
  #depth = 0
  /** sum of all repetitions */
  repetitions = 0
  supported = true
  readonly #text: string

  constructor(text: string) {
    this.#text = text
  }

  /** Parses the complete text. */
  read(): string {
    const { text } = this.#sequence()
    // The rest is an unmatched bracket, or an alternative outside of groups, where `^` and `$` bind to one side each.
    if (this.#at < this.#text.length || text === "") this.#fail()
    return text
  }

  /** Stops the parser. */
  #fail(): Piece {
    this.supported = false
    this.#at = this.#text.length
    return nothing
  }

  #peek(): string {
    return this.#text.charAt(this.#at)
  }

  #take(): string {
    const character = this.#peek()
    if (character === "") this.#fail()
    else this.#at += 1
    return character
  }

  #skip(character: string): boolean {
    if (this.#peek() !== character) return false
    this.#at += 1
    return true
  }

  #alternatives(): Piece {
    const pieces: Array<Piece> = []
    do pieces.push(this.#sequence())
    while (this.#skip("|"))
    if (pieces.some(({ text }) => text === "")) return this.#fail()
    return {
      text: pieces.map(({ text }) => text).join("|"),
      nullable: pieces.some(({ nullable }) => nullable)
    }
  }

  #sequence(): Piece {
    let text = ""
    let nullable = true
    while (this.#at < this.#text.length && this.#peek() !== "|" && this.#peek() !== ")") {
      const piece = this.#repeated(this.#atom())
      text += piece.text
      nullable &&= piece.nullable
    }
    return { text, nullable }
  }

  #atom(): Piece {
    const character = this.#take()
    if (character === "(") return this.#group()
    if (character === "[") return this.#brackets()
    if (character === ".") return one(`^${outsideOfStrings}`)
    if (character === "\\") return this.#escaped()
    return character === "-" || plain.test(character) ? one(character) : this.#fail()
  }

  #group(): Piece {
    if (this.#skip("?") && !this.#skip(":")) return this.#fail()
    this.#depth += 1
    if (this.#depth > schemaBounds.depth) return this.#fail()
    const inner = this.#alternatives()
    if (!this.#skip(")")) return this.#fail()
    this.#depth -= 1
    return { text: `(${inner.text})`, nullable: inner.nullable }
  }

  #escaped(): Piece {
    const character = this.#take()
    const negated = negatedEscapes[character]
    if (negated !== undefined) return one(`^${negated}${outsideOfStrings}`)
    const meaning = classEscapes[character] ?? itself(character)
    return meaning === undefined ? this.#fail() : one(meaning)
  }

  #brackets(): Piece {
    const negated = this.#skip("^")
    let members = ""
    let dash = false
    while (this.supported && !this.#skip("]")) {
      const member = this.#member()
      if (member === "-") dash = true
      else members += member
    }
    if (members === "" && !dash) return this.#fail()
    // A dash at the end is not a range.
    return one(`${negated ? "^" : ""}${members}${negated ? outsideOfStrings : ""}${dash ? "-" : ""}`)
  }

  #member(): string {
    const character = this.#take()
    if (character === "\\") {
      const escaped = this.#take()
      return classEscapes[escaped] ?? itself(escaped) ?? this.#fail().text
    }
    if (character === "-") return character
    if (!plain.test(character) && !special.test(character)) return this.#fail().text
    if (this.#peek() !== "-" || this.#text.charAt(this.#at + 1) === "]") return character
    this.#at += 1
    const to = this.#take()
    return alphanumeric.test(character) && alphanumeric.test(to) && character <= to
      ? `${character}-${to}`
      : this.#fail().text
  }

  #repeated(atom: Piece): Piece {
    const character = this.#peek()
    if (character === "{") return this.#counted(atom)
    if (character !== "?" && character !== "*" && character !== "+") return atom
    this.#at += 1
    // Unbounded repetition of a possibly empty part is a loop.
    if (atom.nullable && character !== "?") return this.#fail()
    return this.#once({ text: atom.text + character, nullable: atom.nullable || character !== "+" })
  }

  #counted(atom: Piece): Piece {
    const braces = /^\{(\d{1,4})(,?)(\d{0,4})\}/.exec(this.#text.slice(this.#at))
    if (braces === null || atom.nullable) return this.#fail()
    const [quantifier, from = "", comma = "", to = ""] = braces
    if (comma === "" && to !== "") return this.#fail()
    const least = Number(from)
    const most = comma === "" ? least : to === "" ? undefined : Number(to)
    if ((most ?? least) > schemaBounds.repetitions || (most !== undefined && (most < least || most === 0))) {
      return this.#fail()
    }
    this.#at += quantifier.length
    this.repetitions += most ?? least
    return this.#once({ text: `${atom.text}{${least},${most ?? ""}}`, nullable: least === 0 })
  }

  /** A question mark after a quantifier makes it lazy, which does not change what matches as a whole. */
  #once(piece: Piece): Piece {
    this.#skip("?")
    return /[*+?{]/.test(this.#peek()) ? this.#fail() : piece
  }
}

const alphanumeric = /^[A-Za-z0-9]$/

/** A character in brackets. */
const one = (members: string): Piece => ({ text: `[${members}]`, nullable: false })

/** Whether a character means itself after a backslash. Letters and digits do not. */
const itself = (character: string): string | undefined =>
  !alphanumeric.test(character) && (plain.test(character) || special.test(character)) ? character : undefined

export interface Pattern {
  readonly text: string
  readonly repetitions: number
}

/** Returns `pattern` in the form of the model server, or undefined. */
export const safePattern = (pattern: string): Pattern | undefined => {
  if (pattern.length > schemaBounds.patternLength) return undefined
  const inner = /^\^(.*)\$$/s.exec(pattern)?.[1]
  if (inner === undefined) return undefined
  const reader = new PatternReader(inner)
  const text = reader.read()
  return reader.supported ? { text: `^${text}$`, repetitions: reader.repetitions } : undefined
}
