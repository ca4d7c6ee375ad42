import { memoryWorld } from "./auditWorld.ts"
import { suite } from "./Audit.ts"
import { namesSuite } from "./AuditNames.ts"
import { preparedSuite } from "./AuditPrepared.ts"
import { properties } from "./AuditProperty.ts"

suite("memory", memoryWorld)
namesSuite("memory", memoryWorld)
preparedSuite("memory", memoryWorld)
properties("memory", memoryWorld)
