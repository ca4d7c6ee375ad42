import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** What commands ask of the running gateways (`src/replicas/Replicas.ts`). */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE questions (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      asked_at timestamptz NOT NULL DEFAULT now(),
      action text NOT NULL CHECK (action IN ('refresh', 'stop', 'list')),
      -- the prefix of a key; null: all keys
      key text,
      -- by the ids of the processes
      answers jsonb NOT NULL DEFAULT '{}'
    )`
})
