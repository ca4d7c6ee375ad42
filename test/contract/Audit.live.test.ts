import { liveWorld } from "./auditWorld.ts"
import { suite } from "./Audit.ts"
import { namesSuite } from "./AuditNames.ts"
import { preparedSuite } from "./AuditPrepared.ts"
import { properties } from "./AuditProperty.ts"

suite("Postgres", liveWorld)
namesSuite("Postgres", liveWorld)
preparedSuite("Postgres", liveWorld)
properties("Postgres", liveWorld)
