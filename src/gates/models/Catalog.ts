/** The installed models: resolves names, and decides who may use which. Pure; both layers use it. */
import type { ModelGrant } from "../../domain/Caller.ts"
import type { Model } from "../../domain/Model.ts"
import { isPrintable } from "../../domain/text.ts"

/** More than any server has. The bound keeps a broken backend from exhausting our memory. */
const maxModels = 10_000
/** The longest name that Ollama accepts (docs/protocol.md, "Model names"). */
const maxNameLength = 350
const defaultTag = ":latest"

export class Catalog {
  /** in the backend's order */
  readonly models: ReadonlyArray<Model>
  readonly #byName: ReadonlyMap<string, Model>

  /** Leaves out invalid and repeated names. */
  constructor(listed: ReadonlyArray<Model>) {
    const byName = new Map<string, Model>()
    for (const model of listed) {
      if (byName.size >= maxModels) break
      if (isName(model.name) && !byName.has(model.name)) byName.set(model.name, model)
    }
    this.#byName = byName
    this.models = [...byName.values()]
  }

  /** Matches exactly, or with `:latest` when the name has no tag. No trimming, no case folding. */
  find(name: string): Model | undefined {
    return this.#byName.get(name) ?? (hasTag(name) ? undefined : this.#byName.get(name + defaultTag))
  }

  resolve(grant: ModelGrant, name: string): Model | undefined {
    const model = this.find(name)
    return model !== undefined && grants(grant, model) ? model : undefined
  }

  effective(grant: ModelGrant): ReadonlyArray<Model> {
    return grant === "all" ? this.models : this.models.filter((model) => grants(grant, model))
  }
}

/** A grant names models by the same rule as a request: `llama3` grants `llama3:latest`. */
const grants = (grant: ModelGrant, model: Model): boolean =>
  grant === "all" ||
  grant.has(model.name) ||
  (model.name.endsWith(defaultTag) && grant.has(model.name.slice(0, -defaultTag.length)))

/** A tag comes after the last `/`. A colon before that belongs to the port of a host. */
const hasTag = (name: string): boolean => name.includes(":", name.lastIndexOf("/") + 1)

const isName = (name: string): boolean =>
  name.length > 0 && name.length <= maxNameLength && isPrintable(name) && !/\s/.test(name)
