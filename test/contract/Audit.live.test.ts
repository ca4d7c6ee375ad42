import { liveWorld } from "./auditWorld.ts"
import { suite } from "./Audit.ts"

suite("Postgres", liveWorld)
