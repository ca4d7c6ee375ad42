import { liveWorld } from "./auditWorld.ts"
import { suite } from "./Ledger.ts"

suite("Postgres", liveWorld)
