import { memoryWorld } from "./auditWorld.ts"
import { suite } from "./Audit.ts"
import { properties } from "./AuditProperty.ts"

suite("memory", memoryWorld)
properties("memory", memoryWorld)
