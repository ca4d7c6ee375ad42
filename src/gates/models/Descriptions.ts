/**
 * What the model list leaves out. Ollama up to 0.24 tells capabilities and context length in `/api/show` only, so each model
 * is asked for once per digest, beside the polls and never in their way.
 *
 * Bounds: one call at a time, `longestMs` each, `mostPerRound` a poll; a model that cannot be described is left as it is and
 * asked for again after `retryMs`. Digests that are no longer listed are forgotten.
 */
import { type Cause, Duration, Effect, Exit } from "effect"
import type { BackendFailed } from "../../domain/Errors.ts"
import type { Description, Model } from "../../domain/Model.ts"

const longestMs = 3000
const mostPerRound = 200
const retryMs = 300_000

export class Descriptions {
  readonly #describe: (name: string) => Effect.Effect<Description, BackendFailed>
  readonly #nowMs: () => number
  readonly #known = new Map<string, Description>()
  readonly #failedAt = new Map<string, number>()

  constructor(describe: (name: string) => Effect.Effect<Description, BackendFailed>, nowMs: () => number) {
    this.#describe = describe
    this.#nowMs = nowMs
  }

  /** The models with what is known of them; what the list itself says comes first. */
  complete(models: ReadonlyArray<Model>): ReadonlyArray<Model> {
    return models.map((model) => described(model, this.#known.get(idOf(model))))
  }

  /** Whether a listed model could not be described when it was last asked for. */
  get failing(): boolean {
    return this.#failedAt.size > 0
  }

  /** Asks for what is missing and not known yet, to the end; fails with the last failure. */
  learn(models: ReadonlyArray<Model>): Effect.Effect<void, Failure> {
    return Effect.suspend(() => {
      const listed = new Map(models.map((model) => [idOf(model), model]))
      for (const asked of [this.#known, this.#failedAt])
        for (const id of asked.keys()) if (!listed.has(id)) asked.delete(id)
      const missing = [...listed].filter(([id, model]) => isIncomplete(model) && this.#mayAsk(id))
      let last: Cause.Cause<Failure> | undefined
      const asking = Effect.forEach(
        missing.slice(0, mostPerRound),
        ([id, { name }]) =>
          Effect.map(Effect.exit(this.#ask(id, name)), (exit) => {
            if (Exit.isFailure(exit)) last = exit.cause
          }),
        { discard: true }
      )
      return Effect.andThen(
        asking,
        Effect.suspend(() => (last === undefined ? Effect.void : Effect.failCause(last)))
      )
    })
  }

  #mayAsk(id: string): boolean {
    const failedAt = this.#failedAt.get(id)
    return !this.#known.has(id) && (failedAt === undefined || this.#nowMs() - failedAt >= retryMs)
  }

  #ask(id: string, name: string): Effect.Effect<void, Failure> {
    return this.#describe(name).pipe(
      Effect.timeout(Duration.millis(longestMs)),
      Effect.map((description) => {
        this.#known.set(id, description)
        this.#failedAt.delete(id)
      }),
      Effect.tapCause(() => Effect.sync(() => this.#failedAt.set(id, this.#nowMs())))
    )
  }
}

type Failure = BackendFailed | Cause.TimeoutError

/** The digest, so that a model that was replaced is asked for again and one with two names is asked for once. */
const idOf = (model: Model): string => (model.digest === "" ? `name ${model.name}` : model.digest)

const isIncomplete = (model: Model): boolean =>
  model.capabilities === undefined || model.contextLength === undefined

export const described = (model: Model, description: Description | undefined): Model =>
  description === undefined ? model : { ...description, ...model }
