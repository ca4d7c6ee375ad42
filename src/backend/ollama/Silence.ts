/**
 * How long each model has sent nothing while requests wait for it. When a model server hangs, the first request waits for
 * `firstByteTimeoutMs`, and those that came later end with it: they do not wait as long again.
 *
 * A frame of any request ends the silence of its model. A request whose output the server collects is silent while it is served,
 * so nothing is concluded while one runs.
 */
export interface Heard {
  /** a frame has come */
  readonly frame: () => void
  /** How long the request may still wait for its first frame. More, when the model sends frames meanwhile. */
  readonly leftMs: () => number
  /** the request has ended; called once */
  readonly end: () => void
}

interface Model {
  running: number
  collecting: number
  /** time of the last frame, or of the first request, in monotonic ms */
  since: number
}

export interface SilenceOptions {
  readonly nowMs: () => number
  readonly timeoutMs: number
}

/** A request waits at least for this part of the time: the end of the one before it may have freed the server. */
const leastPart = 1 / 5

export class Silence {
  readonly #options: SilenceOptions
  readonly #models = new Map<string, Model>()

  constructor(options: SilenceOptions) {
    this.#options = options
  }

  /** The number of models that are asked now. */
  get size(): number {
    return this.#models.size
  }

  /** Notes a request for `name`, until its `end`. */
  begin(name: string, collects: boolean): Heard {
    const { nowMs, timeoutMs } = this.#options
    const began = nowMs()
    const model = this.#models.get(name) ?? { running: 0, collecting: 0, since: began }
    this.#models.set(name, model)
    model.running += 1
    if (collects) model.collecting += 1
    return {
      frame: () => void (model.since = nowMs()),
      leftMs: () => {
        const now = nowMs()
        if (model.collecting > 0) model.since = now
        return Math.max(model.since + timeoutMs, began + timeoutMs * leastPart) - now
      },
      end: () => {
        model.running -= 1
        if (collects) model.collecting -= 1
        if (model.running === 0) this.#models.delete(name)
      }
    }
  }
}
