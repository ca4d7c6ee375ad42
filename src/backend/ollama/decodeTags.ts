/** Decodes `GET /api/tags` (docs/protocol.md, "Models and descriptions"). A malformed entry is left out; the others stay. */
import { Option, Schema } from "effect"
import type { Model } from "../../domain/Model.ts"
import { contextLengthOf, Details, detailsOf } from "./decodeShow.ts"

/** Further models are left out, because each entry takes time to check. No server has so many. */
const maxModels = 10_000

const Text = Schema.optional(Schema.NullOr(Schema.String))
const Count = Schema.optional(Schema.NullOr(Schema.Finite))
const Names = Schema.optional(Schema.NullOr(Schema.Array(Schema.String)))

const Entry = Schema.Struct({
  name: Schema.NonEmptyString,
  model: Text,
  modified_at: Text,
  size: Count,
  digest: Text,
  details: Schema.optional(Schema.NullOr(Details)),
  capabilities: Names,
  remote_model: Text,
  remote_host: Text
})

const decodeEntry = Schema.decodeUnknownOption(Entry)
const decodeList = Schema.decodeUnknownOption(
  Schema.fromJsonString(Schema.Struct({ models: Schema.NullOr(Schema.Array(Schema.Unknown)) }))
)

/** Returns `undefined` unless the text is a list of models. */
export const decodeTags = (text: string): ReadonlyArray<Model> | undefined => {
  const list = decodeList(text)
  if (Option.isNone(list)) return undefined
  return (list.value.models ?? []).slice(0, maxModels).flatMap((value) => {
    const entry = decodeEntry(value)
    return Option.isSome(entry) && isLocal(entry.value) ? [modelOf(entry.value)] : []
  })
}

type Entry = typeof Entry.Type

/** Whether the model runs on the backend itself. Prompts must not go to another host. */
const isLocal = (entry: Entry): boolean =>
  !entry.remote_host && !entry.remote_model && !isCloud(entry.name) && !isCloud(entry.model ?? "")

/** Whether the tag is `cloud`, or ends in `-cloud`. */
const isCloud = (name: string): boolean => {
  const last = name.slice(name.lastIndexOf("/") + 1)
  return last.includes(":") && /[:-]cloud$/i.test(last.slice(last.indexOf(":")))
}

const modelOf = (entry: Entry): Model => ({
  name: entry.name,
  modifiedAt: entry.modified_at ?? "1970-01-01T00:00:00Z",
  size:
    entry.size !== undefined && entry.size !== null && Number.isSafeInteger(entry.size)
      ? Math.max(0, entry.size)
      : 0,
  digest: entry.digest ?? "",
  details: detailsOf(entry.details ?? {}),
  ...contextLengthOf(entry.details?.context_length ?? undefined),
  ...(entry.capabilities === undefined || entry.capabilities === null
    ? {}
    : { capabilities: entry.capabilities })
})
