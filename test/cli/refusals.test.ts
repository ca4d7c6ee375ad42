import { assert, it } from "@effect/vitest"
import { Admin, tollgateHere } from "./inProcess.ts"
import { failsWith } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"

const cases: ReadonlyArray<readonly [ReadonlyArray<string>, RegExp]> = [
  [["create-tenant", "--name", "refusals"], /tenant "refusals" exists already/],
  [["create-tenant", "--name", ""], /--name must be/],
  [["create-tenant", "--name", "x\ny"], /--name must be/],
  [["create-tenant", "--name", "x", "--rpm", "0"], /--rpm must be a whole number from 1/],
  [["create-tenant", "--name", "x", "--tpm", "many"], /--tpm must be a whole number/],
  [["create-tenant", "--name", "x", "--rpm", "2147483648"], /--rpm must be a whole number from 1/],
  [["create-tenant"], /--name is required/],
  [["create-key", "--tenant", "nobody", "--name", "x"], /unknown tenant "nobody"/],
  [["rotate-key", "--prefix", "tg_000000000"], /unknown key prefix tg_000000000/],
  [["rotate-key", "--prefix", "tg_000000000", "--grace", "soon"], /--grace must be a time such as/],
  [["create-key", "--tenant", "refusals", "--name", "x", "--scopes", "admin"], /--scopes must be/],
  [["create-key", "--tenant", "refusals", "--name", "x", "--scopes", ""], /--scopes must be/],
  [["create-key", "--tenant", "refusals", "--name", "x", "--expires-in", "soon"], /--expires-in must be/],
  [["create-key", "--tenant", "refusals", "--name", "x", "--expires-in", "0d"], /--expires-in must be/],
  [["create-key", "--tenant", "refusals", "--name", "x", "--expires-at", "2020-01-01"], /in the future/],
  [["create-key", "--tenant", "refusals", "--name", "x", "--expires-at", "2027-02-30"], /--expires-at must/],
  [["list-keys", "--tenant", "nobody"], /unknown tenant "nobody"/],
  [["revoke-key", "--prefix", "tg_000000000"], /unknown key prefix tg_000000000/],
  [["revoke-key", "--prefix", "tg_00000000"], /no key has the prefix or the name "tg_00000000"$/m],
  [["revoke-key", "--prefix", "%"], /no key has the prefix or the name "%"$/m],
  [["set-budget", "--key", "tg_000000000", "--daily", "5"], /unknown key prefix/],
  [["report", "--by", "keyz"], /^tollgate: --by must be tenant, key, model, user or day \(/],
  [["show-usage", "--tenant", "t", "--period", "year"], /--period must be day, week, month or total/],
  [["set-budget", "--key", "tg_000000000"], /--daily must be given/],
  [
    ["set-budget", "--tenant", "refusals", "--each-user", "--daily", "5"],
    /--each-user must be given with --key/
  ],
  [
    ["set-limits", "--key", "tg_000000000", "--each-user", "--priority", "batch"],
    /--priority must be given without/
  ],
  [["set-limits", "--key", "tg_000000000", "--each-user"], /must be given/],
  [
    ["set-limits", "--key", "tg_000000000", "--each-user", "--user", "ada", "--rpm", "5"],
    /--user must be given without --each-user/
  ],
  [
    ["set-budget", "--key", "tg_000000000", "--each-user", "--user", "ada", "--daily", "5"],
    /--user must be given without --each-user/
  ],
  [["show-budget", "--tenant", "refusals", "--user", "ada"], /--user must be given with --key/],
  [["set-budget", "--key", "tg_000000000", "--daily", "-1"], /daily/],
  [["set-budget", "--key", "tg_000000000", "--daily", "9007199254740992"], /--daily must be/],
  ...["Authorization", "cookie", "X-Api-Key", "X User", "", "x".repeat(65), "X:Y"].map(
    (name) => [["set-end-user", "--key", "tg_000000000", "--header", name], /carries no credentials/] as const
  ),
  [["set-models", "--tenant", "refusals"], /--models must be given/],
  [["set-models", "--tenant", "nobody", "--allow-all"], /unknown tenant/],
  [["show-usage", "--tenant", "refusals", "--period", "year"], /--period must be/],
  [["show-usage", "--tenant", "nobody", "--period", "day"], /unknown tenant/],
  [["set-limits", "--rpm", "5"], /--tenant must be given, or --key/],
  [["set-limits", "--tenant", "refusals", "--rpm", "none"], /--rpm must be a whole number/],
  [["set-prompt-log", "--key", "tg_000000000"], /--on must be given, or --off/],
  [["report", "--by", "colour"], /--by must be/],
  [["report", "--since", "someday"], /--since must be a time such as/],
  [["report", "--since", "2027-02-30"], /--since must be a time such as/],
  [["report", "--since", "2027-03-01", "--until", "2027-02-01"], /--since must be a time before --until/],
  [["report", "--month", "2027-02", "--until", "2027-02-01"], /--month must be given without --since and/],
  [["report", "--month", "february"], /--month must be a month such as 2027-01/],
  [["report", "--price", "/nonexistent"], /nonexistent: the file cannot be read/],
  [["requests", "--follow", "--until", "now"], /--until must be left out when --follow is given/],
  [["report", "--top", "0"], /--top must be a whole number from 1 to 10000/],
  [["report", "--tenant", "nobody"], /unknown tenant "nobody"/],
  [["requests", "--status", "teapot"], /--status must be a status such as 429/],
  [["requests", "--since", "soon"], /--since must be a time/],
  [["requests", "--limit", "1001"], /--limit must be a whole number from 1 to 1000/],
  [["requests", "--tenant", "nobody"], /unknown tenant/],
  [["requests", "--key", "tg_000000000"], /unknown key prefix/],
  [["requests", "--key", "short"], /no key has the prefix or the name "short"/],
  [["show-request"], /id/],
  [["reconcile", "--since", "someday"], /--since must be a time such as/],
  [["reconcile", "--month", "2027-02", "--since", "1d"], /--month must be given without --since and/],
  [["destroy-everything"], /unknown command/],
  [["import-keys"], /unknown command "import-keys"; did you mean create-keys or list-keys\?/],
  [["import-keys", "--help"], /unknown command "import-keys"; did you mean create-keys or list-keys\?/],
  [["--json", "lst-keys", "-h"], /unknown command \\"lst-keys\\"; did you mean list-keys\?/],
  [["help", "lst-keys"], /unknown command "lst-keys"; did you mean list-keys\?/],
  [["list-keys", "--tenant", "refusals", "--secret"], /unknown option --secret/]
]

const test = testWith(it.effect, Admin)

test("when a command is refused, then it is one line that names what to change", function* () {
  assert.strictEqual((yield* tollgateHere("create-tenant", "--name", "refusals")).code, 0)
  for (const [args, expected] of cases) failsWith(yield* tollgateHere(...args), expected, args.join(" "))
})

test("when the model server does not answer, then the command says so, without the server's words", function* () {
  failsWith(
    yield* tollgateHere("list-models"),
    /^tollgate: the model server did not answer: check BACKEND_URL$/m
  )
})
