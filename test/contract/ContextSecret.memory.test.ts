import { layerMemory } from "../../src/secrets/memory.ts"
import { suite } from "./ContextSecret.ts"

suite("memory", layerMemory)
