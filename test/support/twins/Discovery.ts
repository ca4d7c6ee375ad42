/** Discovery in memory, for tests: the test sets the models. */
import { guards } from "../../../src/backend/ollama/guards/guards.ts"
import { Context, Effect, Exit, Layer } from "effect"
import { Unavailable } from "../../../src/domain/Errors.ts"
import { noPolicy, type WindowPolicy, withWindow } from "../../../src/domain/promptWindow.ts"
import type { Description, Model } from "../../../src/domain/Model.ts"
import { Catalog } from "../../../src/gates/models/Catalog.ts"
import { described } from "../../../src/gates/models/Descriptions.ts"
import { Discovery } from "../../../src/gates/models/Discovery.ts"
import { resolveModel } from "../../../src/gates/models/resolveModel.ts"

/** What a test can change in the memory twin. */
export class DiscoveryControl extends Context.Service<
  DiscoveryControl,
  {
    /** Sets the installed models. An empty list also stands for an expired one. */
    set(models: ReadonlyArray<Model>): Effect.Effect<void>
    /** Whether every call fails with 503 from now on. */
    breakDown(down: boolean): Effect.Effect<void>
    /** How often a refresh was asked for. */
    readonly refreshes: Effect.Effect<number>
  }
>()("tollgate/gates/models/DiscoveryControl") {}

/** `descriptions`: what the backend would answer in `/api/show`, by model name. */
export const layerMemory = (
  models: ReadonlyArray<Model>,
  descriptions: Readonly<Record<string, Description>> = {},
  policy: WindowPolicy = noPolicy
): Layer.Layer<Discovery | DiscoveryControl> =>
  Layer.effectContext(
    Effect.sync(() => {
      const catalogOf = (listed: ReadonlyArray<Model>) =>
        new Catalog(listed.map((model) => described(model, descriptions[model.name])))
      let catalog = catalogOf(models)
      let down = false
      let refreshes = 0
      const undecided = Exit.fail(
        new Unavailable({ gate: "Discovery", cause: new Error("taken down by a test") })
      )
      return Context.make(Discovery, {
        resolve: (key, asked) => (down ? undecided : resolveModel(catalog, key, asked, policy, guards)),
        effective: (key) =>
          down ? undecided : Exit.succeed(catalog.offered(key.facts.caller).map(withWindow(policy))),
        isExpired: () => catalog.models.length === 0,
        refresh: Effect.sync(() => void (refreshes += 1))
      }).pipe(
        Context.add(DiscoveryControl, {
          set: (next) => Effect.sync(() => void (catalog = catalogOf(next))),
          breakDown: (value) => Effect.sync(() => void (down = value)),
          refreshes: Effect.sync(() => refreshes)
        })
      )
    })
  )
