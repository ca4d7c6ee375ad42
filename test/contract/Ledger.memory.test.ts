import { memoryWorld } from "./auditWorld.ts"
import { suite } from "./Ledger.ts"

suite("memory", memoryWorld)
