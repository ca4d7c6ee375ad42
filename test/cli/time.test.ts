/** Times, weeks and extra budgets on the command line of gateways in Berlin. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"
import { makeCalendar, TimeZone } from "../../src/domain/Calendar.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { json, succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const berlin = makeCalendar("Europe/Berlin")
const layerBerlin = Layer.succeed(TimeZone, berlin)

const line = (text: string) => Effect.provideService(tollgateHere(...text.split(" ")), TimeZone, berlin)

const test = testWith(it.effect, Admin.pipe(Layer.provideMerge(layerBerlin)))

const States = Schema.Array(
  Schema.Struct({
    period: Schema.String,
    budget: Schema.NullOr(Schema.Finite),
    extra: Schema.Finite,
    spent: Schema.Finite
  })
)

/** The tokens of a key today, in Berlin. */
const spend = Effect.fnUntraced(function* (prefix: string, tokens: number) {
  const { date } = berlin.dayAt(Date.now())
  yield* sql`
    INSERT INTO ledger AS l (key_id, tenant_id, day, requests, tokens_in, tokens_out)
    SELECT id, tenant_id, ${date}::text::date, 1, ${tokens}::int, 0 FROM api_keys WHERE prefix = ${prefix}
    ON CONFLICT (key_id, day, tenant_id) DO UPDATE SET tokens_in = l.tokens_in + excluded.tokens_in`
})

test("when a key has more budget until a day, then it is shown everywhere, and one command ends it", function* () {
  succeeds(yield* line("create-tenant --name acme"))
  const prefix = prefixOf((yield* line("create-key --tenant acme --name anna")).stdout)
  const none = yield* line("add-budget --key anna --tokens 50k --until fri")
  assert.strictEqual(none.code, 1)
  assert.include(none.stderr, "--tokens must be for an owner with a budget")
  succeeds(yield* line("set-budget --key anna --daily 100 --weekly 1000"))
  yield* spend(prefix, 100)
  const added = yield* line("add-budget --key anna --tokens 50k --until 2027-12-24")
  succeeds(added)
  assert.include(
    added.stderr,
    "50,000 tokens more until 2027-12-24 24:00 +01:00: what is used from now on counts against them first."
  )
  assert.match(added.stdout, /PERIOD\s+BUDGET\s+EXTRA\s+SPENT\s+LEFT\s+STATE/)
  assert.match(added.stdout, /day\s+100\s+50,000\s+100\s+50,000\s+ok/)
  yield* spend(prefix, 40)
  const states = yield* json(States, yield* line("show-budget --key anna --json"))
  assert.deepStrictEqual(states, [
    { period: "day", budget: 100, extra: 50_000, spent: 140 },
    { period: "week", budget: 1000, extra: 50_000, spent: 140 },
    { period: "month", budget: null, extra: 0, spent: 140 },
    { period: "total", budget: null, extra: 0, spent: 140 }
  ])
  const shown = yield* line("show-key --key anna")
  assert.match(shown.stdout, /extra budget\s+50,000 tokens\nit ends\s+2027-12-24 24:00 \+01:00/)
  // The key that replaces it has it too, and a file of apply has not.
  const next = prefixOf((yield* line(`rotate-key --key ${prefix}`)).stdout)
  assert.match((yield* line(`show-key --key ${next}`)).stdout, /extra budget\s+50,000 tokens/)
  assert.notInclude((yield* line("export")).stdout, "extra")
  const ended = yield* line(`add-budget --key ${prefix} --tokens none`)
  assert.match(ended.stdout, /day\s+100\s+140\s+0\s+spent/)
  assert.include(ended.stderr, "No extra budget is in force.")
  assert.notInclude((yield* line(`show-key --key ${next}`)).stdout, "extra budget")
})

test("when a tenant has more budget, then its usage says so, and the options that do not fit are refused", function* () {
  succeeds(yield* line("create-tenant --name lab"))
  succeeds(yield* line("set-budget --tenant lab --weekly 10"))
  succeeds(yield* line("add-budget --tenant lab --tokens 5 --until tomorrow"))
  assert.match(
    (yield* line("show-usage --tenant lab --period week")).stderr,
    /extra budget: 5 tokens until .* 24:00/
  )
  for (const [text, error] of [
    ["add-budget --tenant lab --tokens 5", "--until must be given"],
    ["add-budget --tenant lab --tokens none --until fri", "--until must be left out with --tokens none"],
    ["add-budget --tenant lab --tokens 5 --until 2020-01-01", "--until must be a time in the future"],
    ["add-budget --tenant lab --tokens 0 --until fri", "--tokens must be"],
    ["add-budget --tenant lab --tokens 5 --until someday", "fri, tomorrow"]
  ] as const) {
    const ran = yield* line(text)
    assert.strictEqual(ran.code, 1, text)
    assert.include(ran.stderr, error, text)
  }
})

test("when a key ends on a day, then it ends with that day in the zone, and that is printed", function* () {
  succeeds(yield* line("create-tenant --name ends"))
  const made = yield* line("create-key --tenant ends --name k --expires-at 2027-12-24")
  assert.include(made.stderr, "expires 2027-12-24 24:00 +01:00")
  const Key = Schema.Struct({ expires: Schema.String })
  const shown = yield* json(Key, yield* line("show-key --key k --json"))
  assert.strictEqual(shown.expires, "2027-12-24T23:00:00.000Z")
  assert.match((yield* line("list-keys --tenant ends")).stdout, /2027-12-24 24:00 \+01:00/)
})

test("when a report is of days, then they are those of the zone, and so are those of reconcile", function* () {
  const { date, dates } = berlin.dayAt(Date.now())
  const report = yield* line("report --since today")
  assert.include(report.stdout, `${date} to ${date}, Europe/Berlin days`)
  assert.include(
    (yield* line("report --month this")).stdout,
    `${dates.month.from} to ${date}, Europe/Berlin days`
  )
  assert.include((yield* line("reconcile")).stdout, `${date}, Europe/Berlin days`)
  const last = yield* line("report --month last --csv --by day")
  succeeds(last)
  assert.strictEqual((yield* line("report --month next")).code, 1)
})
