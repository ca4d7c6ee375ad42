/**
 * The models that the model server has loaded, as far as the queue knows: a request that goes loads its model, and others leave
 * for it where not all fit. The server's own list (`see`) corrects this.
 *
 * How many fit is `BACKEND_MAX_LOADED_MODELS`. Without it two models fit together once the server was seen with both, until one
 * of them is found gone.
 */
import {
  assumedLoadMs,
  baseOf,
  type Bounds,
  maxModels,
  maxPairs,
  noticeableLoadMs,
  type Seen,
  turnsRemembered
} from "./QueueStore.ts"

/** The average of about the last `turnsRemembered` figures. It starts as their plain mean, so that the first count in full. */
export class Average {
  #count = 0
  #mean: number

  /** `assumed`: before the first figure */
  constructor(assumed: number) {
    this.#mean = assumed
  }

  get value(): number {
    return this.#mean
  }

  add(figure: number): void {
    this.#count = Math.min(this.#count + 1, turnsRemembered)
    this.#mean = this.#count === 1 ? figure : this.#mean + (figure - this.#mean) / this.#count
  }
}

export interface ModelState {
  readonly name: string
  /** it is loaded, or a request that loads it has a place */
  resident: boolean
  /** a request of it has ended since it was loaded */
  loaded: boolean
  /** end of its turn, when another model waits */
  until: number
  /** when it was loaded, used or unloaded last */
  changed: number
  /** requests that have a place */
  running: number
  readonly loadMs: Average
}

const nobody: ReadonlyMap<string, number> = new Map()

const pairOf = (one: string, two: string): string => [baseOf(one), baseOf(two)].sort().join(" ")

export class LoadedModels {
  readonly #models = new Map<string, ModelState>()
  /** pairs of models that fit together */
  readonly #together = new Set<string>()

  get #all(): ReadonlyArray<ModelState> {
    return [...this.#models.values()]
  }

  /** names of the loaded models */
  get resident(): ReadonlyArray<string> {
    return this.#all.filter(({ resident }) => resident).map(({ name }) => name)
  }

  /** A model that was never asked for is not loaded. */
  of(name: string): ModelState {
    const fresh = { name, resident: false, loaded: false, until: 0, changed: 0, running: 0 }
    return this.#models.get(name) ?? { ...fresh, loadMs: new Average(assumedLoadMs) }
  }

  #keep(model: ModelState): void {
    if (!this.#models.has(model.name) && this.#models.size >= maxModels) {
      for (const { name, resident, running } of this.#all)
        if (!resident && running === 0) this.#models.delete(name)
    }
    this.#models.set(model.name, model)
  }

  /** The loaded models that must leave before this one is loaded. One that runs, or that requests wait for, leaves last. */
  inTheWayOf(
    name: string,
    { maxLoadedModels }: Bounds,
    awaited: ReadonlyMap<string, number>
  ): ReadonlyArray<ModelState> {
    if (this.#models.get(name)?.resident === true) return []
    const isBusy = (model: ModelState) => Number(model.running > 0 || awaited.has(model.name))
    const resident = this.#all
      .filter((model) => model.resident)
      .sort(
        (one, two) =>
          isBusy(one) - isBusy(two) ||
          one.until - two.until ||
          one.changed - two.changed ||
          (one.name < two.name ? -1 : 1)
      )
    const same = resident.filter((model) => baseOf(model.name) === baseOf(name))
    const others = resident.filter((model) => !same.includes(model))
    const leaving =
      maxLoadedModels === undefined
        ? others.filter((model) => !this.#together.has(pairOf(model.name, name)))
        : others.slice(0, Math.max(0, others.length + 1 - maxLoadedModels))
    return [...same, ...leaving]
  }

  /** A request of the model goes. Returns whether the model was loaded. `turnMaxMs`: of a turn, after the load */
  start(now: number, name: string, turnMaxMs: number): boolean {
    const model = this.of(name)
    if (!model.resident) {
      model.resident = true
      model.loaded = false
      model.until = now + model.loadMs.value + turnMaxMs
      this.#keep(model)
    }
    model.running += 1
    model.changed = now
    return model.loaded
  }

  /** A turn is for those who share the server: where nobody waited for another model, the turns begin when somebody does. */
  beginTurns(until: number): void {
    for (const model of this.#all) if (model.resident) model.until = Math.max(model.until, until)
  }

  unload(now: number, model: ModelState): void {
    model.resident = false
    model.loaded = false
    model.changed = now
  }

  /** A request of the model gives up its place. */
  release(now: number, name: string): void {
    const model = this.of(name)
    model.running -= 1
    model.changed = now
  }

  /**
   * A request had an answer. `wasLoaded` when it went; `loadMs`: how long it waited for its model, as the server says. Returns how
   * long the server loaded the model: of the requests that waited for one load, the first to end counts it.
   */
  answered(now: number, name: string, wasLoaded: boolean, loadMs: number, bounds: Bounds): number {
    const model = this.of(name)
    const isCounted = wasLoaded || !model.loaded
    model.loaded = model.resident
    // The model may have been loaded when the queue did not know it: then its request says nothing of a load.
    if (!isCounted || loadMs < noticeableLoadMs) return 0
    if (wasLoaded) this.#found(now, model, bounds)
    model.loadMs.add(loadMs)
    return loadMs
  }

  /** The model was found gone, and is loaded again: it does not fit together with others, so those are gone. */
  #found(now: number, model: ModelState, bounds: Bounds): void {
    for (const pair of this.#together)
      if (pair.split(" ").includes(baseOf(model.name))) this.#together.delete(pair)
    model.resident = false
    for (const other of this.inTheWayOf(model.name, bounds, nobody)) this.unload(now, other)
    model.resident = true
    model.loaded = true
  }

  #fit(pair: string): void {
    if (this.#together.size >= maxPairs && !this.#together.has(pair)) this.#together.clear()
    this.#together.add(pair)
  }

  /**
   * The server's own list. What was used since it was asked for is not judged by it, and while the server swaps, it still lists
   * the model that leaves. `until`: end of the turn of a model that is new here.
   */
  see(now: number, { agoMs, names }: Seen, bounds: Bounds, until: number): void {
    for (const model of this.#all) {
      const isListed = names.includes(baseOf(model.name))
      if (model.resident && !isListed && model.running === 0 && model.changed < now - agoMs)
        this.unload(now, model)
    }
    for (const name of names) {
      for (const other of names) if (other !== name) this.#fit(pairOf(name, other))
      if (this.#all.some((model) => model.resident && baseOf(model.name) === name)) continue
      const model = this.of(name)
      if (model.changed >= now - agoMs || this.inTheWayOf(name, bounds, nobody).length > 0) continue
      model.resident = true
      model.loaded = true
      model.until = until
      this.#keep(model)
    }
  }
}
