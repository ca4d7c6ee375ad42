import { Effect } from "effect"
import { layerMemory } from "../support/twins/Discovery.ts"
import { suite } from "./Discovery.ts"

suite("memory", (installed, test, descriptions) => Effect.provide(test, layerMemory(installed, descriptions)))
