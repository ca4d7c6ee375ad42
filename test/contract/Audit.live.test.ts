import { liveWorld } from "./auditWorld.ts"
import { suite } from "./Audit.ts"
import { properties } from "./AuditProperty.ts"

suite("Postgres", liveWorld)
properties("Postgres", liveWorld)
