import { Effect } from "effect"
import { Command } from "effect/cli"
import type { Mended } from "../../src/admin/books/Books.ts"
import type { Difference, Proof } from "../../src/admin/books/proof.ts"
import type { Sums } from "../../src/ledger/audited.ts"
import { described } from "../help.ts"
import { Incomplete, Reported } from "../exit.ts"
import { Needs } from "../Needs.ts"
import * as flags from "../flags.ts"
import { boundsOf, periodFlags } from "../period.ts"
import { amount, counted, escapeText, show } from "../terminal.ts"
import { Zone } from "../zone.ts"

const sumsText = ({ requests, tokensIn, tokensOut }: Sums): string =>
  `${amount(requests)} request${requests === 1 ? "" : "s"}, ${amount(tokensIn)} tokens in and ${amount(tokensOut)} out`

const ownerText = ({ key, tenant }: Pick<Difference, "key" | "tenant">): string =>
  escapeText(key === null ? `tenant ${tenant ?? "-"}` : `key ${key} (${tenant ?? "-"})`)

const fact = (difference: Difference): string => {
  switch (difference.kind) {
    case "ledger": {
      const { audit, day, ledger } = difference
      const why =
        ledger.requests < audit.requests
          ? "The ledger lacks requests that the audit has."
          : ledger.requests > audit.requests
            ? "The ledger has requests that the audit lacks."
            : "The number of requests is the same, the tokens are not."
      return `On ${day} the ledger has ${sumsText(ledger)}; the audit has ${sumsText(audit)}. ${why}`
    }
    case "counter": {
      const { counter, ledger, period } = difference
      const name = { day: "of the day", week: "of the week", month: "of the month", total: "of all time" }[
        period
      ]
      const by =
        counter > ledger ? `${amount(counter - ledger)} too many` : `${amount(ledger - counter)} too few`
      return `The live counter ${name} has ${amount(counter)} tokens; the ledger has ${amount(ledger)}. That is ${by}.`
    }
    case "hold":
      return "The live counters still hold tokens of requests that have ended."
    case "intent":
      return difference.inAudit
        ? "Requests that have an audit row are still marked as open."
        : "Requests of a dead process are still open, and nobody has ended them."
  }
}

const requestsText = ({ kind, match, moreRequests, requests }: Difference): string => {
  if (requests.length === 0) return "No request in the audit explains it."
  const more = moreRequests === 0 ? "" : ` and ${amount(moreRequests)} more`
  const which =
    kind === "hold" || kind === "intent"
      ? "The requests"
      : match === "exact"
        ? "Requests with just these tokens"
        : "Requests booked there"
  return `${which}: ${requests.join(", ")}${more}.`
}

/** One difference in plain sentences. */
export const sentenceOf = (difference: Difference): string =>
  `${ownerText(difference)}: ${fact(difference)} ${requestsText(difference)}`

/** Whether nothing differs of what was compared. */
const isRight = ({ differences, moreDifferences }: Proof): boolean =>
  differences.length === 0 && moreDifferences === 0

const isWhole = ({ counters }: Proof): boolean => counters === undefined || counters.busy === 0

/** Prints what the last comparison found, and ends with the exit code that says it. */
const end = Effect.fnUntraced(function* (proof: Proof, json: object, text: ReadonlyArray<string>) {
  yield* show({ ...toJson(proof), ...json }, text.join("\n"))
  if (!isRight(proof)) return yield* new Reported()
  if (!isWhole(proof)) return yield* new Incomplete()
})

const lines = (proof: Proof, zone: string): ReadonlyArray<string> => {
  const { compared, counters, days, differences, dropped, moreDifferences, running } = proof
  return [
    `${days.since} to ${days.until}, ${zone} days`,
    `The audit with its corrections has ${sumsText(compared.audit)}.`,
    `The ledger has ${sumsText(compared.ledger)}. They were compared for each key and day: ${amount(compared.keysAndDays)}.`,
    ...(dropped === undefined
      ? []
      : [
          `The audit of the time before ${dropped.before} was dropped. So the ledger of that time was not compared: ${counted(dropped.keysAndDays, "row")}.`
        ]),
    counters === undefined
      ? "The live counters were not compared: without REDIS_URL they are in the memory of the gateway, which compares them itself."
      : `The live counters of ${amount(counters.compared)} keys and tenants were compared.${
          counters.busy === 0
            ? ""
            : ` ${amount(counters.busy)} were in use all the time, or have too many keys, and were not compared.`
        }`,
    ...(running === 0 ? [] : [`${counted(running, "request")} open. They are in no sum yet.`]),
    ...differences.map((difference) => `- ${sentenceOf(difference)}`),
    ...(moreDifferences === 0 ? [] : [`- ${counted(moreDifferences, "more difference")}.`]),
    isRight(proof)
      ? `The books ${counters === undefined ? "of the database " : ""}are right${isWhole(proof) ? "" : " as far as compared. With --wait each is compared once it is not in use"}.`
      : "The books differ."
  ]
}

const toJson = (proof: Proof) => ({
  right: isRight(proof),
  whole: isWhole(proof),
  ...proof,
  dropped: proof.dropped ?? null,
  counters: proof.counters ?? null,
  differences: proof.differences.map((difference) => ({ ...difference, text: sentenceOf(difference) }))
})

const mendedText = ({ corrections, counters, holds, intents, ledger }: Mended): string =>
  [
    `Mended: ${counted(ledger, "row")} of the ledger`,
    `${counted(corrections, "correction")} written`,
    `counters of ${amount(counters)} keys and tenants`,
    `${counted(holds, "hold")} settled`,
    `${counted(intents, "open request")} ended.`
  ].join(", ")

export const reconcile = Command.make(
  "reconcile",
  {
    ...periodFlags("the first of the month"),
    repair: flags.toggle(
      "repair",
      "Mend what differs, and compare again. Audit rows do not change. Needs the owner of the schema, as migrate does"
    ),
    wait: flags.toggle("wait", "Go on until the counters of each key and tenant were seen at rest")
  },
  Effect.fnUntraced(function* ({ repair, wait, ...period }) {
    const bounds = yield* boundsOf(period)
    const { zone } = yield* Effect.flatten(Zone)
    const books = yield* Needs.use((needs) => needs.books)
    if (!repair) {
      const proof = yield* books.compare(bounds, wait)
      return yield* end(proof, {}, lines(proof, zone))
    }
    const { after, before, mended } = yield* books.repair(bounds, wait)
    const text = isRight(before)
      ? lines(before, zone)
      : [...lines(before, zone), "", mendedText(mended), "", ...lines(after, zone)]
    yield* end(after, { before: toJson(before), mended }, text)
  })
).pipe(
  described(
    "Prove the books: compare the audit, the ledger, the live counters and open requests; exit 1 when they differ, 2 when some counters were in use",
    "tollgate reconcile --month 2026-11",
    ["tollgate reconcile --since 2026-11-01 --until yesterday --repair", "Mend what differs"]
  )
)
