import { layerCircuitBreaker } from "../../src/backend/breaker.ts"
import { suite } from "./CircuitBreaker.ts"

suite("in the process", layerCircuitBreaker({ failures: 5, openMs: 30_000 }))
