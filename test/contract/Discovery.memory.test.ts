import { Effect } from "effect"
import { layerMemory } from "../../src/gates/models/memory.ts"
import { suite } from "./Discovery.ts"

suite("memory", (installed, test, descriptions) => Effect.provide(test, layerMemory(installed, descriptions)))
