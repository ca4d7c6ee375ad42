import { layerCircuitBreaker } from "../../src/backend/breaker.ts"
import { suite } from "./CircuitBreaker.ts"

const layer = layerCircuitBreaker({ failures: 5, openMs: 30_000 })

suite("in the process", layer)
