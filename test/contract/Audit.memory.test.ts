import { memoryWorld } from "./auditWorld.ts"
import { suite } from "./Audit.ts"

suite("memory", memoryWorld)
