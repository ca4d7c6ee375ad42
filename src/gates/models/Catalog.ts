/** The installed models: resolves names, and decides who may use which. Pure; both layers use it. */
import type { Caller, ModelGrant } from "../../domain/Caller.ts"
import { maxModelName, type Model, type OfferedModel } from "../../domain/Model.ts"
import { withoutDefaultTag } from "../../domain/modelName.ts"
import { isPrintable } from "../../domain/text.ts"

/** More than any server has. The bound keeps a broken backend from exhausting our memory. */
const maxModels = 10_000
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

  /**
   * The model that a caller gets by this name. A model that the caller may use wins over an alias of the same name, so an
   * alias hides no model. The grant must have the model itself, whatever its alias is. An alias of an alias is no name.
   */
  resolve({ aliases, models }: Names, name: string): Resolved | undefined {
    const model = this.#granted(models, name)
    if (model !== undefined) return { model }
    const alias = withoutDefaultTag(name)
    const target = aliases?.get(alias)
    const aliased = target === undefined ? undefined : this.#granted(models, target)
    return aliased === undefined ? undefined : { model: aliased, alias }
  }

  /** Whether the model server has what a caller asks for, granted or not. */
  has({ aliases }: Names, name: string): boolean {
    const target = aliases?.get(withoutDefaultTag(name))
    return this.find(name) !== undefined || (target !== undefined && this.find(target) !== undefined)
  }

  effective(grant: ModelGrant): ReadonlyArray<Model> {
    return grant === "all" ? this.models : this.models.filter((model) => grants(grant, model))
  }

  /** Every name that `resolve` knows for a caller: models in the backend's order, then aliases in the order of the alphabet. */
  offered(names: Names & Pick<Caller, "aliasDefaults">): ReadonlyArray<OfferedModel> {
    const own = this.effective(names.models).map((model) => ({ name: model.name, model }))
    const aliases = [...(names.aliases?.keys() ?? [])].toSorted().flatMap((name) => {
      const resolved = this.resolve(names, name)
      const numCtx = names.aliasDefaults?.get(name)?.num_ctx
      return resolved?.alias === undefined
        ? []
        : [{ name, model: resolved.model, ...(numCtx === undefined ? {} : { numCtx }) }]
    })
    return [...own, ...aliases]
  }

  #granted(grant: ModelGrant, name: string): Model | undefined {
    const model = this.find(name)
    return model !== undefined && grants(grant, model) ? model : undefined
  }
}

/** What decides which names a caller has. */
type Names = Pick<Caller, "aliases" | "models">

/** `alias`: the name that was asked for, without `:latest`, when it is an alias of the model. */
export interface Resolved {
  readonly model: Model
  readonly alias?: string
}

/** A grant names models by the same rule as a request: `llama3` grants `llama3:latest`. */
const grants = (grant: ModelGrant, model: Model): boolean =>
  grant === "all" || grant.has(model.name) || grant.has(withoutDefaultTag(model.name))

/** A tag comes after the last `/`. A colon before that belongs to the port of a host. */
const hasTag = (name: string): boolean => name.includes(":", name.lastIndexOf("/") + 1)

const isName = (name: string): boolean =>
  name.length > 0 && name.length <= maxModelName && isPrintable(name) && !/\s/.test(name)
