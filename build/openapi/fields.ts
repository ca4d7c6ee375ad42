/** What becomes of each field of a request: those of the schemas are read or refused, and of the others the vendors' are listed here. */
import { SchemaAST, type Schema } from "effect"
import { type Fate, fateOf } from "../../src/http/dialect/types.ts"
import { messages, messagesCount } from "../../src/http/dialect/messages/dialect.ts"
import * as native from "../../src/http/dialect/native/dialect.ts"
import * as openai from "../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../src/http/dialect/responses/dialect.ts"
import { becomes } from "./types.ts"

/** Why fields are left out → their names. */
type LeftOut = { readonly [why: string]: string }

export interface FieldPlace {
  readonly path: string
  /** the field whose objects have the fields; "" is the body */
  readonly within: string
  readonly schema: Schema.Top
  readonly leftOut: LeftOut
}

const at = (
  path: string,
  { accepts: schema }: { readonly accepts: Schema.Top },
  leftOut: { readonly [within: string]: LeftOut }
): ReadonlyArray<FieldPlace> =>
  Object.entries(leftOut).map(([within, fields]) => ({ path, within, schema, leftOut: fields }))

const caches = "about the caches of the vendor's servers; the model server has its own"
const stored = "nothing is stored here"
const tiers = "there is one tier"
const padding = "no padding is added"
const always = "it keeps or unloads the model for everybody"
const reloads = "another value loads the model anew for everybody"
const notForced = "the model decides how many calls an answer has"
const ofServers = "only the vendor's servers run what it is about"

const chat: LeftOut = {
  [caches]: "prompt_cache_key prompt_cache_options prompt_cache_retention",
  [stored]: "metadata store",
  [tiers]: "service_tier",
  [notForced]: "parallel_tool_calls",
  [ofServers]: "web_search_options",
  "nothing without audio in `modalities`, which is refused": "audio",
  "nothing without `functions`, which are refused": "function_call",
  "it makes an answer faster and no other one": "prediction",
  "the models here have no such switch; say it in a message": "verbosity"
}

const anthropic: LeftOut = {
  [caches]: "cache_control diagnostics",
  [tiers]: "speed",
  [ofServers]: "mcp_servers",
  "no context is edited here; a prompt that is too long is told by `X-Prompt-Truncated`":
    "context_management",
  "whom the vendor bills": "billing_policy user_profile_id workspace_id",
  "names of the vendor's unfinished features": "betas"
}

const anthropicOutput: LeftOut = { "nothing here counts it down for the model": "task_budget" }

export const fieldPlaces: ReadonlyArray<FieldPlace> = [
  ...at("/v1/chat/completions", openai.openaiChat, {
    "": chat,
    messages: {},
    stream_options: { [padding]: "include_obfuscation" }
  }),
  ...at("/v1/completions", openai.openaiCompletions, {
    "": {},
    stream_options: { [padding]: "include_obfuscation" }
  }),
  ...at("/v1/embeddings", openai.openaiEmbeddings, { "": {} }),
  ...at("/v1/responses", responses, {
    "": {
      [caches]: "prompt_cache_options prompt_cache_retention",
      [stored]: "store",
      [tiers]: "service_tier access_programs",
      [padding]: "stream_options",
      [ofServers]: "max_tool_calls",
      "no context is edited here; a prompt that is too long is told by `X-Prompt-Truncated`":
        "context_management",
      "an image is sent as it came": "image"
    },
    text: { "comes back in the answer; the models here have no such switch": "verbosity" },
    reasoning: {
      "comes back in the answer; the models here have no such switch": "context mode",
      "the older name of `summary`, which has no effect": "generate_summary"
    }
  }),
  ...at("/v1/messages", messages, {
    "": {
      ...anthropic,
      [tiers]: "speed service_tier inference_geo",
      [ofServers]: "mcp_servers container",
      "no other model answers": "fallbacks fallback_credit_token"
    },
    output_config: anthropicOutput,
    tool_choice: { [notForced]: "disable_parallel_tool_use" }
  }),
  ...at("/v1/messages/count_tokens", messagesCount, { "": anthropic, output_config: anthropicOutput }),
  ...at("/api/chat", native.nativeChat, {
    "": {
      [always]: "keep_alive",
      "a full window always loses its older half": "shift",
      "it would show the template and the system prompt": "_debug_render_only"
    },
    messages: {},
    options: {
      [reloads]:
        "num_batch num_gpu main_gpu num_thread use_mmap draft_num_predict low_vram numa f16_kv use_mlock vocab_only logits_all embedding_only",
      "the model server knows it no more": "tfs_z mirostat mirostat_tau mirostat_eta penalize_newline"
    }
  }),
  ...at("/api/generate", native.nativeGenerate, {
    "": {
      [always]: "keep_alive",
      "a full window always loses its older half": "shift",
      "it would show the template and the system prompt": "_debug_render_only"
    }
  }),
  ...at("/api/embed", native.nativeEmbed, { "": { [always]: "keep_alive" } }),
  ...at("/api/embeddings", native.nativeEmbeddings, { "": { [always]: "keep_alive" } }),
  ...at("/api/show", native.nativeShow, {
    "": { "what is shown is the same for all": "system template verbose options" }
  })
]

/** The properties of the objects that may stand there. */
const propertiesOf = (ast: SchemaAST.AST): ReadonlyArray<SchemaAST.PropertySignature> => {
  if (ast._tag === "Union") return ast.types.flatMap(propertiesOf)
  if (ast._tag === "Arrays") return [...ast.elements, ...ast.rest].flatMap(propertiesOf)
  return ast._tag === "Objects" ? ast.propertySignatures : []
}

/** What becomes of each field: undefined: it is read. */
export const fatesOf = ({ leftOut, schema, within }: FieldPlace): ReadonlyMap<string, Fate | undefined> => {
  const body = propertiesOf(schema.ast)
  const own =
    within === ""
      ? body
      : body.filter(({ name }) => name === within).flatMap(({ type }) => propertiesOf(type))
  return new Map<string, Fate | undefined>([
    ...own.map(({ name, type }) => [String(name), fateOf(type)] as const),
    ...Object.entries(leftOut).flatMap(([why, names]) =>
      names.split(" ").map((name) => [name, { is: "left out", why }] as const)
    )
  ])
}

/** A row for each place and each thing that becomes of a field there. */
export const fieldRows = (): ReadonlyArray<ReadonlyArray<string>> =>
  fieldPlaces.flatMap((place) =>
    [...Map.groupBy(fatesOf(place), ([, fate]) => becomes(fate))].map(([what, fields]) => [
      `\`${place.path}\``,
      place.within === "" ? "the body" : `\`${place.within}\``,
      fields.map(([name]) => `\`${name}\``).join(", "),
      what
    ])
  )
