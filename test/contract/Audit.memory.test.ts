import { memoryWorld } from "./auditWorld.ts"
import { suite } from "./Audit.ts"
import { namesSuite } from "./AuditNames.ts"
import { properties } from "./AuditProperty.ts"

suite("memory", memoryWorld)
namesSuite("memory", memoryWorld)
properties("memory", memoryWorld)
