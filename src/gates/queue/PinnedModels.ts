/**
 * The models that stay loaded (`set-models --pin`). One that is not loaded is loaded by the gateway once the models that must leave
 * for it have been idle for a while, and one that nobody uses is named to the server now and then, so that it keeps it. One replica
 * does one of these at a time: the one whose beat was answered with the name.
 */
import type { LoadedModels } from "./LoadedModels.ts"
import { baseOf, type Bounds, pinTimes } from "./QueueStore.ts"

interface Pin {
  /** when a replica may be asked again */
  at: number
  /** how often one was asked since the last load that ended well */
  tries: number
}

export class PinnedModels {
  readonly #pins = new Map<string, Pin>()
  #loading: { readonly name: string; readonly replica: string } | undefined

  get names(): ReadonlyArray<string> {
    return [...this.#pins.keys()]
  }

  has(model: string): boolean {
    return this.#pins.has(baseOf(model))
  }

  set(now: number, names: ReadonlyArray<string>): void {
    for (const name of this.#pins.keys()) if (!names.includes(name)) this.#pins.delete(name)
    for (const name of names) if (!this.#pins.has(name)) this.#pins.set(name, { at: now, tries: 0 })
  }

  /** The replica says what it loads, and what it has loaded. It is gone: both are undefined. */
  report(now: number, models: LoadedModels, replica: string, loading?: string, loaded?: string): void {
    // A store that lost its state learns of it.
    if (this.#loading === undefined && loading !== undefined) this.#loading = { name: loading, replica }
    if (this.#loading?.replica !== replica || this.#loading.name === loading) return
    const { name } = this.#loading
    const [model, pin] = [models.of(name), this.#pins.get(baseOf(name))]
    this.#loading = undefined
    if (loaded !== name) {
      if (model.resident && model.running === 0) models.unload(now, model)
      return
    }
    model.loaded = model.resident
    model.changed = now
    if (pin !== undefined) Object.assign(pin, { at: now + pinTimes.firstMs, tries: 0 })
  }

  /** What the replica shall load, or name to the server again, now. `awaited`: models that requests wait for */
  next(
    now: number,
    models: LoadedModels,
    replica: string,
    awaited: ReadonlyMap<string, number>,
    bounds: Bounds
  ): string | undefined {
    if (this.#loading !== undefined) return undefined
    for (const [pinned, pin] of [...this.#pins].sort(([one], [two]) => (one < two ? -1 : 1))) {
      if (pin.at > now) continue
      const name = models.residentOf(pinned) ?? pinned
      const model = models.of(name)
      if (model.resident) {
        if (model.running > 0 || now - model.changed < pinTimes.renewMs) continue
        model.changed = now
      } else {
        // The queue loads it for the requests that wait.
        if ([...awaited.keys()].some((one) => baseOf(one) === pinned)) continue
        const leaving = models.inTheWayOf(name, bounds, awaited)
        const isIdle = leaving.every(
          (one) =>
            one.running === 0 &&
            !awaited.has(one.name) &&
            !this.has(one.name) &&
            now - one.changed >= pinTimes.idleMs
        )
        if (!isIdle) continue
        for (const one of leaving) models.unload(now, one)
        models.load(now, model)
      }
      pin.tries += 1
      pin.at = now + Math.min(pinTimes.mostMs, pinTimes.firstMs * 2 ** (pin.tries - 1))
      this.#loading = { name, replica }
      return name
    }
    return undefined
  }
}
