/**
 * Models of a few hundred kilobytes that a real Ollama runs: llama architecture, but only a Markov chain. Embeddings
 * are one-hot, attention and feed-forward are zero, so `output.weight` is a table from the current token to the next
 * one. The real sampler, templates and grammars are at work, and the words are readable.
 */
import type { JsonObject } from "../../src/domain/Inference.ts"
import type { GgufModel, GgufTensor, GgufValue } from "./gguf.ts"

/** GPT-2's alphabet: a printable character for each byte, so that tokens are text. */
const alphabet: ReadonlyArray<string> = (() => {
  const printable = (byte: number): boolean =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174
  let next = 256
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : next++))
})()

const spelled = (bytes: Uint8Array): string => Array.from(bytes, (byte) => alphabet[byte] ?? "").join("")
const encoded = (text: string): string => spelled(Buffer.from(text))

export const words: ReadonlyArray<string> = (
  "the quick brown fox jumps over a lazy dog while seven kind wizards box with grey quartz under bright blue " +
  "skies and nobody minds at all today because summer came early again"
).split(" ")

const thoughts = ["hmm", "let", "me", "consider", "this"]

/** `normal` and `control` in llama.cpp's table of token types. */
const normal = 1
const control = 3

const controlTokens = ["<|begin|>", "<|end|>", "<|role|>", "<|msg|>", "<|go|>", "<|gotool|>", "<|gothink|>"]

/** Name of each token that is not a byte, and what it says. */
const namedTokens: ReadonlyArray<readonly [name: string, says: string]> = [
  ...words.map((word) => [word, encoded(` ${word}`)] as const),
  ["emoji", encoded(" 🙂")],
  ["umlaut", encoded(" größer")],
  ["han", encoded(" 漢字")],
  // The first two bytes of “€”: the third comes as a token of its own, so a character is split over two frames.
  ["euro, begun", spelled(Uint8Array.of(0x20, 0xe2, 0x82))],
  ["<think>", encoded("<think>")],
  ["</think>", encoded("</think>")],
  ...thoughts.map((word) => [`thought ${word}`, encoded(` ${word}`)] as const),
  ["tool call", encoded("<tool_call>")],
  ["tool call ends", encoded("</tool_call>")],
  ["tool name", encoded('\n{"name": "get_weather",')],
  ["tool arguments", encoded(' "arguments": {"city": "Paris"}}\n')],
  ["loop", encoded(" na")]
]

const tokens: ReadonlyArray<string> = [...alphabet, ...controlTokens, ...namedTokens.map(([, says]) => says)]
const names = [...controlTokens, ...namedTokens.map(([name]) => name)]
const ids = new Map(names.map((name, i) => [name, 256 + i] as const))
const idOf = (name: string): number => {
  const id = ids.get(name)
  if (id === undefined || ids.size !== names.length) throw new Error(`not one token is named ${name}`)
  return id
}

const never = -30
/** A byte of printable ASCII is possible everywhere, or a grammar (`format`) could not go on. */
const hardly = -18

type Next = ReadonlyMap<number, number>

/** Which token follows which, with weights that need not sum to one. */
const chain = ({ endShare, half }: Pick<Shape, "endShare" | "half">): ReadonlyMap<number, Next> => {
  const all = new Map<number, Next>()
  const go = (from: number | string, ...to: ReadonlyArray<readonly [number | string, number]>): void => {
    const id = (token: number | string) => (typeof token === "number" ? token : idOf(token))
    all.set(id(from), new Map(to.map(([token, weight]) => [id(token), weight])))
  }
  const starts = words.map((word) => [word, 1] as const)
  const ends = endShare === 0 ? [] : [["<|end|>", (endShare * words.length) / (1 - endShare)] as const]
  const special = [["emoji", 1] as const, ["umlaut", 1] as const, ["han", 1] as const]
  for (let byte = 0; byte < 256; byte += 1) go(byte, ...starts)
  for (const token of ["<|begin|>", "<|role|>", "<|msg|>", "<|go|>", "<|end|>"]) go(token, ...starts)
  for (const word of [...words, "emoji", "umlaut", "han"]) {
    go(word, ...starts, ...special, ["euro, begun", half], ...ends)
  }
  go("euro, begun", [0xac, 1])
  go("<|gotool|>", ["tool call", 1])
  go("tool call", ["tool name", 1])
  go("tool name", ["tool arguments", 1])
  go("tool arguments", ["tool call ends", 1])
  go("tool call ends", ["<|end|>", 1])
  go("<|gothink|>", ["<think>", 1])
  go("<think>", ["thought hmm", 1])
  const thinkOn = thoughts.map((word) => [`thought ${word}`, 1] as const)
  for (const word of thoughts) go(`thought ${word}`, ...thinkOn, ["</think>", 1])
  go("</think>", ...starts)
  // After "~" it says the same word for ever, as models in JSON mode do now and then.
  go("~".charCodeAt(0), ["loop", 1])
  go("loop", ["loop", 1])
  return all
}

/** `output.weight`, next token by current token, as logarithms of probabilities. */
const outputWeight = (shape: Shape): Float32Array => {
  const { width } = shape
  const table = new Float32Array(tokens.length * width).fill(never)
  for (let byte = 32; byte < 127; byte += 1) table.fill(hardly, byte * width, (byte + 1) * width)
  for (const [from, next] of chain(shape)) {
    const sum = [...next.values()].reduce((a, b) => a + b, 0)
    for (const [to, weight] of next) table[to * width + from] = Math.log(weight / sum)
  }
  // The norm before the output multiplies a one-hot vector by the root of its length.
  return table.map((value) => value / Math.sqrt(width))
}

const ones = (length: number): Float32Array => new Float32Array(length).fill(1)

interface Shape {
  readonly name: string
  readonly width: number
  readonly blocks: number
  readonly hidden: number
  readonly heads: number
  readonly context: number
  /** how often a word is the last one; 0: it never ends by itself */
  readonly endShare: number
  /** how likely half a character is beside a word; above 1 a temperature of 0 goes in circles */
  readonly half: number
  readonly type: "f32" | "f16"
  /** `words`: one-hot tokens that follow each other. `vectors`: arbitrary ones, and attention takes their mean. */
  readonly says: "words" | "vectors"
}

/** Ones on the diagonal. */
const identity = (rows: number, width: number): Float32Array => {
  const table = new Float32Array(rows * width)
  for (let i = 0; i < Math.min(rows, width); i += 1) table[i * width + i] = 1
  return table
}

/** The same numbers between -1 and 1 every time, by a linear congruential generator. */
const arbitrary = (length: number): Float32Array => {
  let state = 1
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 31 - 1
  })
}

const blockTensors = ({ blocks, hidden, says, type, width }: Shape): ReadonlyArray<GgufTensor> =>
  Array.from({ length: blocks }, (_, block) => {
    const matrix = (name: string, rows: number, columns: number): GgufTensor => ({
      name: `blk.${block}.${name}.weight`,
      shape: [rows, columns],
      type
    })
    const norm = (name: string): GgufTensor => ({
      name: `blk.${block}.${name}.weight`,
      shape: [width],
      type: "f32",
      values: ones(width)
    })
    return [
      norm("attn_norm"),
      norm("ffn_norm"),
      matrix("attn_q", width, width),
      matrix("attn_k", width, width),
      ...["attn_v", "attn_output"].map((name) => ({
        ...matrix(name, width, width),
        ...(says === "vectors" ? { values: identity(width, width) } : {})
      })),
      matrix("ffn_gate", hidden, width),
      matrix("ffn_up", hidden, width),
      matrix("ffn_down", width, hidden)
    ]
  }).flat()

const u = (value: number): GgufValue => ({ type: "uint32", value })
const s = (value: string): GgufValue => ({ type: "string", value })

const markovChain = (shape: Shape, more: Readonly<Record<string, GgufValue>> = {}): GgufModel => {
  const { says, type, width } = shape
  const embeddings = says === "words" ? identity(tokens.length, width) : arbitrary(tokens.length * width)
  return {
    metadata: {
      "general.architecture": s("llama"),
      "general.name": s(shape.name),
      "general.file_type": u(type === "f16" ? 1 : 0),
      "llama.context_length": u(shape.context),
      "llama.embedding_length": u(width),
      "llama.block_count": u(shape.blocks),
      "llama.feed_forward_length": u(shape.hidden),
      "llama.attention.head_count": u(shape.heads),
      "llama.attention.head_count_kv": u(shape.heads),
      "llama.attention.layer_norm_rms_epsilon": { type: "float32", value: 1e-5 },
      "llama.rope.dimension_count": u(width / shape.heads),
      "llama.vocab_size": u(tokens.length),
      "tokenizer.ggml.model": s("gpt2"),
      "tokenizer.ggml.pre": s("default"),
      "tokenizer.ggml.tokens": { type: "strings", value: tokens },
      "tokenizer.ggml.token_type": {
        type: "int32s",
        value: tokens.map((_, i) => (i >= 256 && i < 256 + controlTokens.length ? control : normal))
      },
      // The format wants merges; this one joins two control characters that nobody sends.
      "tokenizer.ggml.merges": { type: "strings", value: [`${alphabet[1]} ${alphabet[2]}`] },
      "tokenizer.ggml.bos_token_id": u(idOf("<|begin|>")),
      "tokenizer.ggml.eos_token_id": u(idOf("<|end|>")),
      "tokenizer.ggml.add_bos_token": { type: "bool", value: false },
      "tokenizer.chat_template": s(
        "{% for m in messages %}{{m.content}}{% endfor %}SECRET-GGUF-CHAT-TEMPLATE"
      ),
      ...more
    },
    tensors: [
      { name: "token_embd.weight", shape: [tokens.length, width], type, values: embeddings },
      { name: "output_norm.weight", shape: [width], type: "f32", values: ones(width) },
      {
        name: "output.weight",
        shape: [tokens.length, width],
        type,
        ...(says === "words" ? { values: outputWeight(shape) } : {})
      },
      ...blockTensors(shape)
    ]
  }
}

/** The tokens of a model in which some say something else. */
const tokensSaying = (texts: Readonly<Record<string, string>>): GgufValue => {
  const says = new Map(Object.entries(texts).map(([name, text]) => [idOf(name), encoded(text)]))
  return { type: "strings", value: tokens.map((token, id) => says.get(id) ?? token) }
}

/** What a model says that calls another tool. */
const calling = (tool: string, args: JsonObject): Readonly<Record<string, string>> => ({
  "tool name": `\n{"name": "${tool}",`,
  "tool arguments": ` "arguments": ${JSON.stringify(args)}}\n`
})

const small = {
  width: 512,
  blocks: 2,
  hidden: 64,
  heads: 4,
  half: 2,
  context: 4096,
  type: "f32",
  says: "words"
} as const

const flags = (keys: ReadonlyArray<string>): Readonly<Record<string, GgufValue>> =>
  Object.fromEntries(keys.map((key) => [key, { type: "bool", value: true }]))
const thirds = (value: number): GgufValue => ({ type: "float32s", value: [value, value, value] })

/**
 * What turns an image into tokens for a model of `outputs` numbers to a token: a CLIP with one block and four patches, all
 * of it zero. The server decodes and scales images for it as for any other.
 */
const projector = (outputs: number): GgufModel => {
  const [width, hidden, side, patch] = [32, 64, 28, 14]
  const zero = (name: string, ...shape: ReadonlyArray<number>): GgufTensor => ({ name, shape, type: "f32" })
  const block = (name: string, rows: number, columns: number): ReadonlyArray<GgufTensor> => [
    { name: `v.blk.0.${name}.weight`, shape: [rows, columns], type: "f16" },
    zero(`v.blk.0.${name}.bias`, rows)
  ]
  const norm = (name: string): ReadonlyArray<GgufTensor> => [
    { name: `${name}.weight`, shape: [width], type: "f32", values: ones(width) },
    zero(`${name}.bias`, width)
  ]
  return {
    metadata: {
      "general.architecture": s("clip"),
      "general.type": s("projector"),
      "general.name": s("tiny-projector"),
      "general.file_type": u(1),
      ...flags(["clip.has_vision_encoder", "clip.has_llava_projector", "clip.use_gelu"]),
      "clip.projector_type": s("mlp"),
      "clip.vision.image_size": u(side),
      "clip.vision.patch_size": u(patch),
      "clip.vision.embedding_length": u(width),
      "clip.vision.feed_forward_length": u(hidden),
      "clip.vision.projection_dim": u(outputs),
      "clip.vision.attention.head_count": u(2),
      "clip.vision.attention.layer_norm_epsilon": { type: "float32", value: 1e-5 },
      "clip.vision.block_count": u(1),
      "clip.vision.image_mean": thirds(0.5),
      "clip.vision.image_std": thirds(0.5)
    },
    tensors: [
      zero("v.class_embd", width),
      { name: "v.patch_embd.weight", shape: [width, 3, patch, patch], type: "f16" },
      zero("v.position_embd.weight", (side / patch) ** 2 + 1, width),
      ...norm("v.pre_ln"),
      ...norm("v.blk.0.ln1"),
      ...norm("v.blk.0.ln2"),
      ...["attn_k", "attn_q", "attn_v", "attn_out"].flatMap((name) => block(name, width, width)),
      ...block("ffn_up", hidden, width),
      ...block("ffn_down", width, hidden),
      { name: "mm.0.weight", shape: [outputs, width], type: "f16" },
      zero("mm.0.bias", outputs),
      { name: "mm.2.weight", shape: [outputs, outputs], type: "f16" },
      zero("mm.2.bias", outputs)
    ]
  }
}

export const weights = {
  tiny: markovChain({ ...small, name: "tiny", endShare: 0.03 }),
  /** Their tools are those of coding agents, which run the command that does nothing. */
  codex: markovChain(
    { ...small, name: "codex", endShare: 0.1 },
    { "tokenizer.ggml.tokens": tokensSaying(calling("exec_command", { cmd: "true" })) }
  ),
  claude: markovChain(
    { ...small, name: "claude", endShare: 0.1 },
    {
      "tokenizer.ggml.tokens": tokensSaying(calling("Bash", { command: "true", description: "does nothing" }))
    }
  ),
  /** Calls the tool of LangChain's standard tests, and has the words that those of Ollama look for. */
  suites: markovChain(
    { ...small, name: "suites", endShare: 0.03 },
    {
      "tokenizer.ggml.tokens": tokensSaying({
        ...calling("magic_function", { input: 3 }),
        quick: " rayleigh",
        brown: " scatter",
        fox: " rainbow",
        jumps: " water",
        lazy: " ocean",
        dog: " washington"
      })
    }
  ),
  /** Calls the tool of Ollama's integration tests, and each of its words has those that they look for. */
  integration: markovChain(
    { ...small, name: "integration", endShare: 0.03, half: 1 },
    {
      "tokenizer.ggml.tokens": tokensSaying({
        ...calling("get_weather", { location: "Boston" }),
        ...Object.fromEntries(words.map((word) => [word, ` ${word} scatter water july 😀`]))
      })
    }
  ),
  /** Its texts are split by the expression of gpt-oss and Mistral Nemo, the one that takes the most stack. */
  split: markovChain({ ...small, name: "split", endShare: 0.03 }, { "tokenizer.ggml.pre": s("gpt-4o") }),
  /** As many multiplications as a model of 130 million parameters: a stream that lasts long enough to be cut. */
  slow: markovChain({
    name: "slow",
    width: 1024,
    blocks: 8,
    hidden: 4096,
    heads: 16,
    half: 2,
    context: 8192,
    endShare: 0,
    type: "f16",
    says: "words"
  }),
  /** A pooling type is how a server knows a model that only embeds. */
  embed: markovChain(
    { ...small, name: "tiny-embed", width: 64, endShare: 0, says: "vectors" },
    { "llama.pooling_type": u(3) }
  ),
  projector: projector(small.width)
}
