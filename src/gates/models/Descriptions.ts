/**
 * Adds what the model list leaves out: the tokenizer, and where it does capabilities and context length. Ollama sends them in
 * `/api/show`, so the gateway calls it once for each digest. The polls do not wait for it.
 *
 * Bounds: one call at a time, `timeoutMs` each, `maxPerRound` for each poll. When a call fails, the model is used without a
 * description and is tried again after `retryMs`. Digests that are no longer listed are forgotten.
 */
import { type Cause, Duration, Effect, Exit } from "effect"
import type { BackendFailed } from "../../domain/Errors.ts"
import type { Description, Model } from "../../domain/Model.ts"

const timeoutMs = 3000
const maxPerRound = 200
const retryMs = 300_000

export class Descriptions {
  readonly #describe: (name: string) => Effect.Effect<Description, BackendFailed>
  readonly #nowMs: () => number
  readonly #byId = new Map<string, Description>()
  readonly #failedAt = new Map<string, number>()

  constructor(describe: (name: string) => Effect.Effect<Description, BackendFailed>, nowMs: () => number) {
    this.#describe = describe
    this.#nowMs = nowMs
  }

  /** Returns the models with their descriptions. Fields of the list itself take precedence. */
  complete(models: ReadonlyArray<Model>): ReadonlyArray<Model> {
    return models.map((model) => described(model, this.#byId.get(idOf(model))))
  }

  /** Whether the last call for some listed model failed. */
  get failing(): boolean {
    return this.#failedAt.size > 0
  }

  /** Fetches all missing descriptions. Fails with the last failure. */
  fetchMissing(models: ReadonlyArray<Model>): Effect.Effect<void, Failure> {
    return Effect.gen({ self: this }, function* () {
      const listed = new Map(models.map((model) => [idOf(model), model]))
      for (const entries of [this.#byId, this.#failedAt])
        for (const id of entries.keys()) if (!listed.has(id)) entries.delete(id)
      const missing = [...listed].filter(([id, model]) => isIncomplete(model) && this.#mayFetch(id))
      let last: Cause.Cause<Failure> | undefined
      for (const [id, { name }] of missing.slice(0, maxPerRound)) {
        const exit = yield* Effect.exit(this.#fetch(id, name))
        if (Exit.isFailure(exit)) last = exit.cause
      }
      if (last !== undefined) return yield* Effect.failCause(last)
    })
  }

  #mayFetch(id: string): boolean {
    const failedAt = this.#failedAt.get(id)
    return !this.#byId.has(id) && (failedAt === undefined || this.#nowMs() - failedAt >= retryMs)
  }

  #fetch(id: string, name: string): Effect.Effect<void, Failure> {
    return this.#describe(name).pipe(
      Effect.timeout(Duration.millis(timeoutMs)),
      Effect.map((description) => {
        this.#byId.set(id, description)
        this.#failedAt.delete(id)
      }),
      Effect.tapCause(() => Effect.sync(() => this.#failedAt.set(id, this.#nowMs())))
    )
  }
}

type Failure = BackendFailed | Cause.TimeoutError

/** The digest: a replaced model is fetched again, and a model with two names is fetched once. */
const idOf = (model: Model): string => (model.digest === "" ? `name ${model.name}` : model.digest)

const isIncomplete = (model: Model): boolean =>
  model.capabilities === undefined || model.contextLength === undefined || model.tokenizer === undefined

export const described = (model: Model, description: Description | undefined): Model =>
  description === undefined ? model : { ...description, ...model }
