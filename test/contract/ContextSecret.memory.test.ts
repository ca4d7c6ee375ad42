import { layerContextSecret } from "../support/inMemory.ts"
import { suite } from "./ContextSecret.ts"

suite("memory", layerContextSecret)
