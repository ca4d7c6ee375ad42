-- Four roles instead of one, so that what is stolen from one place is worth less. Run as the owner of the database, who
-- also runs `tollgate migrate`, after it and after every upgrade; as often as you like:
--
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f deploy/postgres/roles.sql
--
-- Then give each a password (`\password tollgate_gateway`) and use it in the DATABASE_URL of
--   tollgate_gateway   the gateways: nobody's schema, nobody's key, and the audit is written, never changed
--   tollgate_cli       the admin commands
--   tollgate_console   another program that revokes keys, and does nothing else

DO $$ BEGIN
  IF to_regrole('tollgate_gateway') IS NULL THEN CREATE ROLE tollgate_gateway LOGIN; END IF;
  IF to_regrole('tollgate_cli') IS NULL THEN CREATE ROLE tollgate_cli LOGIN; END IF;
  IF to_regrole('tollgate_console') IS NULL THEN CREATE ROLE tollgate_console LOGIN; END IF;
END $$;

-- What an earlier version of this file, or anybody, has granted.
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC, tollgate_gateway, tollgate_cli, tollgate_console;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC, tollgate_gateway, tollgate_cli, tollgate_console;

REVOKE CREATE ON SCHEMA public FROM PUBLIC, tollgate_gateway, tollgate_cli, tollgate_console;

GRANT USAGE ON SCHEMA public TO tollgate_gateway, tollgate_cli, tollgate_console;

DO $$ BEGIN
  EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
END $$;

-- The gateway.
GRANT SELECT ON schema_migrations, tenants, api_keys, revocations, sealing_secrets TO tollgate_gateway;

-- It reads of a row no more than it needs to add it to the ledger once, and to name an end user in a warning.
GRANT INSERT, SELECT (request_id, tenant_id, key_id, key_prefix, arrived_at, admitted_at, day, tokens_in, tokens_out, status,
  error_type, user_account, model, end_user)
ON audit_log TO tollgate_gateway;

-- Written, never changed, like the log.
GRANT INSERT, SELECT (request_id, tenant_id, key_id, admitted_at, day, tokens_in, tokens_out) ON audit_corrections
TO tollgate_gateway;

GRANT SELECT, INSERT, UPDATE, DELETE ON intents TO tollgate_gateway;

GRANT SELECT, INSERT, UPDATE ON ledger TO tollgate_gateway;

-- The budgets of end users and for models, and what a key is told of its use. Functions write them.
GRANT SELECT ON user_ledger, usage_daily TO tollgate_gateway;

-- What `tollgate status` shows of each process.
GRANT SELECT, INSERT, UPDATE, DELETE ON replicas TO tollgate_gateway;

GRANT SELECT ON replicas TO tollgate_cli;

-- What a command asks of the gateways: to read a change at once, to end the requests of a key, to list what runs.
GRANT SELECT, INSERT, DELETE ON questions TO tollgate_cli;

GRANT SELECT, UPDATE (answers) ON questions TO tollgate_gateway;

-- In which time zone days are counted: a gateway takes its TIMEZONE when no other runs.
GRANT SELECT, UPDATE ON time_zone TO tollgate_gateway;

GRANT SELECT ON time_zone TO tollgate_cli;

-- Warnings of budgets: which there were, and when it last looked for new ones.
GRANT SELECT, INSERT, UPDATE, DELETE ON budget_warnings TO tollgate_gateway;

GRANT SELECT, UPDATE ON budget_watch TO tollgate_gateway;

GRANT SELECT ON budget_warnings TO tollgate_cli;

-- It makes the months of the audit log. Dropping them (AUDIT_RETENTION_DAYS) needs a right that whoever steals the role could
-- misuse. Give it with the setting:
--   GRANT EXECUTE ON FUNCTION prune_audit(timestamptz) TO tollgate_gateway;
GRANT EXECUTE ON FUNCTION prepare_audit_months() TO tollgate_gateway;

-- The sweeper locks what it deletes, and that takes the right to change a column.
GRANT INSERT, DELETE, SELECT (request_id, expires_at), UPDATE (expires_at) ON prompt_log TO tollgate_gateway;

-- The admin commands.
GRANT SELECT ON schema_migrations, ledger, user_ledger, usage_daily, audit_log, audit_corrections, audit_partitions, intents
TO tollgate_cli;

-- Which months of the audit a report reads.
GRANT EXECUTE ON FUNCTION first_request_id(timestamptz), request_id_time(uuid) TO tollgate_cli;

GRANT SELECT, INSERT, UPDATE ON tenants, api_keys TO tollgate_cli;

-- A tenant that was never used (`tollgate delete-tenant`).
GRANT DELETE ON tenants TO tollgate_cli;

-- No longer used. Version 1.0.0 needs it, and may run on this schema beside this version.
GRANT SELECT ON model_pins TO tollgate_gateway;

GRANT SELECT, INSERT, DELETE ON model_pins TO tollgate_cli;

GRANT SELECT, INSERT ON revocations TO tollgate_cli;

GRANT SELECT, DELETE ON prompt_log TO tollgate_cli;

-- The console.
GRANT INSERT (key_prefix) ON revocations TO tollgate_console;
