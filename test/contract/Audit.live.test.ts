import { liveWorld } from "./auditWorld.ts"
import { suite } from "./Audit.ts"
import { namesSuite } from "./AuditNames.ts"
import { properties } from "./AuditProperty.ts"

suite("Postgres", liveWorld)
namesSuite("Postgres", liveWorld)
properties("Postgres", liveWorld)
