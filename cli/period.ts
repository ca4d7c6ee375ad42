/** The options of commands that look at a period, and at some of its requests. */
import { Effect, Option } from "effect"
import { Flag } from "effect/cli"
import { mustBe } from "../src/admin/Errors.ts"
import type { Bounds, Period } from "../src/admin/period.ts"
import * as flags from "./flags.ts"
import { aMoment, readMoment, readMonth } from "./times.ts"

const moment = (name: string, description: string) =>
  flags.text(name, "time", description).pipe(
    Flag.filterMap(readMoment, () => aMoment),
    flags.optional
  )

/** `since`: its default. */
export const periodFlags = (since: string) => ({
  since: moment(
    "since",
    `Begin: 12h or 30d ago, yesterday, 23:00, 2027-01-31, 2027-01-31T22:00+01:00; without an offset in TIMEZONE; default: ${since}`
  ),
  until: moment(
    "until",
    "End, in the same forms; a day is included; what is not over yet ends now; default: now"
  ),
  month: flags.text("month", "month", "A month: 2027-01, last or this, and no --since or --until").pipe(
    Flag.filterMap(readMonth, () => "a month such as 2027-01, last or this"),
    flags.optional
  )
})

export const boundsOf = ({ month, since, until }: Bounds & { readonly month: Bounds | undefined }) =>
  month === undefined
    ? Effect.succeed<Bounds>({ since, until })
    : since === undefined && until === undefined
      ? Effect.succeed(month)
      : mustBe("month", "given without --since and --until")

/** `429`, or `4xx` for a class. */
const readStatus = (text: string): Option.Option<readonly [lowest: number, highest: number]> => {
  const [, hundred] = /^([1-5])xx$/i.exec(text) ?? []
  if (hundred !== undefined) return Option.some([Number(hundred) * 100, Number(hundred) * 100 + 99])
  return /^[1-5]\d\d$/.test(text) ? Option.some([Number(text), Number(text)]) : Option.none()
}

export const selection = {
  model: flags.optionalText("model", "name", "Only requests for this model"),
  user: flags.optionalText("user", "name", "Only requests of this end user"),
  status: flags.text("status", "n", "Only with this status, such as 429, or of a class, such as 5xx").pipe(
    Flag.filterMap(readStatus, () => "a status such as 429, or a class such as 5xx"),
    flags.optional
  )
}

export const periodLine = ({ days, ends, zone }: Period): string =>
  `${ends.join(" to ")}${days === undefined ? "" : `, ${zone} days`}`
