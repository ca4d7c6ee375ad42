import { layerMemory } from "../../src/secrets/ContextSecret.ts"
import { suite } from "./ContextSecret.ts"

suite("memory", layerMemory)
