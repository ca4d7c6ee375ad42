/** Makes every function of a file tell when it is called. */
import { parseAst } from "vitest/node"

export interface Told {
  /** as in the source; "" where it has none */
  readonly name: string
  readonly line: number
}

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [field: string]: unknown
}

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && "type" in value && typeof value.type === "string"

const childrenOf = (node: Node): ReadonlyArray<Node> => Object.values(node).flat().filter(isNode)

const nameIn = (node: unknown): string =>
  isNode(node) && (node.type === "Identifier" || node.type === "PrivateIdentifier")
    ? String(node["name"])
    : ""

/** What a node names, so that a function in it has a name: a variable, a property, a method, a function. */
const nameOf = (node: Node): string => nameIn(node["id"]) || nameIn(node["key"]) || nameIn(node["left"])

/**
 * `source` is JavaScript. Each function calls `call` with its index in `told`, plus `first`, before anything else. A generator
 * calls it once, when it begins.
 */
export const instrument = (source: string, call: string, first: number) => {
  const told: Array<Told> = []
  const inserts: Array<readonly [at: number, text: string]> = []
  const visit = (node: Node, name: string): void => {
    const own = nameOf(node) || name
    const body = node["body"]
    if (/^(?:Function|ArrowFunction)/.test(node.type) && isNode(body)) {
      const index = first + told.length
      told.push({ name: own, line: source.slice(0, node.start).split("\n").length })
      if (body.type === "BlockStatement") inserts.push([body.start + 1, `${call}(${index});`])
      else inserts.push([body.start, `(${call}(${index}), (`], [body.end, "))"])
    }
    for (const child of childrenOf(node)) visit(child, own)
  }
  visit({ ...parseAst(source) }, "")
  let code = source
  // From the end, so that no offset moves. At one place the inner end comes before the outer one.
  for (const [at, text] of inserts.toSorted(([a], [b]) => b - a))
    code = code.slice(0, at) + text + code.slice(at)
  return { code, told }
}
