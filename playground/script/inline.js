/** Inline tokens to nodes. Nothing is ever loaded: an image is a link, and markup is text. */
import { element } from "./dom.js"

const safe = (href) => {
  const url = URL.parse(href)
  return url !== null && ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : undefined
}

const link = (href, nodes, title) => {
  const address = safe(href)
  if (address === undefined) return element("span", "", ...nodes)
  const made = element("a", "", ...nodes)
  made.href = address
  made.target = "_blank"
  made.rel = "noopener noreferrer"
  made.title = title ?? address
  return made
}

const entities = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  copy: "©",
  hellip: "…",
  mdash: "—",
  ndash: "–"
}
const decoded = (text) =>
  text.replaceAll(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|(\w{2,8}));/g, (whole, decimal, hex, name) => {
    if (name !== undefined) return Object.hasOwn(entities, name) ? entities[name] : whole
    const point = Number(decimal ?? `0x${hex}`)
    return point <= 0x10ffff ? String.fromCodePoint(point) : whole
  })

const builders = {
  strong: (token) => element("strong", "", ...inline(token.tokens)),
  em: (token) => element("em", "", ...inline(token.tokens)),
  del: (token) => element("del", "", ...inline(token.tokens)),
  codespan: (token) => element("code", "", token.text),
  br: () => element("br"),
  link: (token) => link(token.href, inline(token.tokens), token.title),
  image: (token) => link(token.href, [`[image: ${token.text || token.href}]`]),
  checkbox: (token) => (token.checked ? "☑ " : "☐ "),
  escape: (token) => token.text,
  maths: (token) => element("span", "maths", token.text),
  html: (token) => (/^<br\s*\/?>$/i.test(token.raw) ? element("br") : token.raw),
  text: (token) =>
    token.tokens === undefined ? decoded(token.text) : element("span", "", ...inline(token.tokens))
}

export const inline = (tokens = []) =>
  tokens.map((token) => (Object.hasOwn(builders, token.type) ? builders[token.type](token) : token.raw))
