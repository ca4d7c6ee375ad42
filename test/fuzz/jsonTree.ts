/** JSON that may say what JSON.parse could never hold: a key twice, a number out of range, escapes anywhere. */
import type { Json } from "../../src/domain/Inference.ts"
import { type Random, wordsOf } from "./Random.ts"

export type Tree =
  | { readonly is: "text"; text: string }
  | { readonly is: "list"; readonly items: Array<Tree> }
  | { readonly is: "object"; readonly entries: Array<[key: string, value: Tree]> }

const isList = (value: Json): value is ReadonlyArray<Json> => Array.isArray(value)

export const treeOf = (value: Json): Tree =>
  isList(value)
    ? { is: "list", items: value.map(treeOf) }
    : typeof value === "object" && value !== null
      ? { is: "object", entries: Object.entries(value).map(([key, inner]) => [key, treeOf(inner)]) }
      : { is: "text", text: JSON.stringify(value) }

const escaped = (key: string, random: Random): string =>
  random.chance(12)
    ? `"${[...key].map((c) => (c.length === 1 && random.chance(2) ? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}` : JSON.stringify(c).slice(1, -1))).join("")}"`
    : JSON.stringify(key)

export const textOf = (tree: Tree, random: Random): string => {
  switch (tree.is) {
    case "text":
      return tree.text
    case "list":
      return `[${tree.items.map((item) => textOf(item, random)).join(",")}]`
    case "object":
      return `{${tree.entries.map(([key, value]) => `${escaped(key, random)}:${textOf(value, random)}`).join(",")}}`
  }
}

/** Keys that mean something to the backend, and some that look as if. */
const keys = [
  ...wordsOf("model Model MODEL name messages prompt stream options Options OPTIONS num_predict Num_Predict"),
  ...wordsOf(
    "NUM_PREDICT num_ctx keep_alive template system raw context images format tools think shift role"
  ),
  ...wordsOf("Role content Content tool_calls function arguments error done message __proto__ constructor"),
  ...wordsOf(
    "toString 0 -1 max_tokens max_completion_tokens n eval_count prompt_eval_count done_reason response"
  ),
  ...wordsOf("created_at logprobs thinking remote_host Me\u017fsages \u017ftream \u212aeep_alive a\u0000b"),
  ""
]

const values = [
  ...wordsOf("null true false 0 -0 1 -1 1.0 1.5 1e2 1e400 -1e400 4096 4097 2147483648 9007199254740993"),
  ...wordsOf(
    String.raw`123456789012345678901234567890 "" "x" "m" "other" "forbidden" "M" "m:latest" "\u0000"`
  ),
  ...wordsOf(String.raw`"\ud800" "user" "json" {} [] [[]] [""] {"a":1} {"num_predict":99999} [{}] [null]`),
  ...wordsOf('{"__proto__":{"num_predict":99999}} {"model":"forbidden"} {"type":"object"} NaN 01 +1 "aGk="'),
  ...wordsOf('[{"role":"user","content":"x"}] "data:image/png;base64,aGk="'),
  "[".repeat(70) + "]".repeat(70),
  '{"a":'.repeat(65) + "1" + "}".repeat(65),
  `"${"x".repeat(5000)}"`
]

/** Every node of the tree, the root included. */
const nodes = (tree: Tree): Array<Tree> =>
  tree.is === "list"
    ? [tree, ...tree.items.flatMap(nodes)]
    : tree.is === "object"
      ? [tree, ...tree.entries.flatMap(([, value]) => nodes(value))]
      : [tree]

const anyValue = (random: Random, root: Tree): Tree => {
  const known = nodes(root)
  return random.chance(3)
    ? (known[random.int(known.length)] ?? root)
    : { is: "text", text: random.word(values) }
}

/** One change somewhere in the tree, in place. A shared node may make it a graph, but never a circle. */
export const mutateTree = (root: Tree, random: Random): void => {
  const all = nodes(root)
  const target = all[random.int(all.length)] ?? root
  switch (target.is) {
    case "text":
      target.text = random.word(values)
      return
    case "list": {
      const at = random.int(target.items.length + 1)
      if (random.chance(2)) target.items.splice(at, 1)
      else target.items.splice(at, 0, copyOf(anyValue(random, root)))
      return
    }
    case "object": {
      const at = random.int(target.entries.length + 1)
      const entry = target.entries[at]
      if (entry === undefined || random.chance(3)) {
        target.entries.splice(at, 0, [random.word(keys), copyOf(anyValue(random, root))])
        return
      }
      const what = random.int(3)
      if (what === 0) target.entries.splice(at, 1)
      else if (what === 1) entry[0] = random.chance(2) ? entry[0].toUpperCase() : random.word(keys)
      else entry[1] = copyOf(anyValue(random, root))
    }
  }
}

const copyOf = (tree: Tree): Tree =>
  tree.is === "list"
    ? { is: "list", items: tree.items.map(copyOf) }
    : tree.is === "object"
      ? { is: "object", entries: tree.entries.map(([key, value]) => [key, copyOf(value)]) }
      : { is: "text", text: tree.text }
