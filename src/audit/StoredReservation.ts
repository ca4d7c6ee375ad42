/**
 * What the row of an intent keeps of its reservation: as much as crash recovery needs to settle it.
 *
 * It is one short text in a column of type jsonb: `account/held/available/admittedAt/slot`, then the budgets of the key and
 * of the tenant, `-` for none. An object in this column was half of what the row cost Postgres (`bench/RESULTS.md`). The row
 * itself has the request and the tenant. The limits are not kept, because they are checked for new reservations only.
 */
import { Effect, Schema } from "effect"
import { type Budgets, noBudgets } from "../domain/Limits.ts"
import { claimsWithoutLimits, type Reservation } from "../domain/Reservation.ts"

const absent = "-"

const budgetsText = ({ day, month, total }: Budgets): string =>
  `${day ?? absent}/${month ?? absent}/${total ?? absent}`

export const storedReservation = ({ admittedAt, available, claims, held, slot }: Reservation): string =>
  `${claims.account.key}/${held}/${available}/${admittedAt}/${slot ? 1 : 0}/${budgetsText(claims.budgets)}/` +
  budgetsText(claims.tenantBudgets ?? noBudgets)

const Amount = Schema.String.check(Schema.isPattern(/^\d{1,16}$/)).pipe(
  Schema.decodeTo(Schema.FiniteFromString)
)
const Budget = Schema.Union([Schema.Literal(absent), Amount])
const Texts = Schema.Tuple([
  Schema.NonEmptyString,
  Amount,
  Amount,
  Amount,
  Schema.Literals(["0", "1"]),
  Budget,
  Budget,
  Budget,
  Budget,
  Budget,
  Budget
])
const decodeTexts = Schema.decodeUnknownEffect(Texts)

const StoredBudgets = Schema.Struct({
  day: Schema.optionalKey(Schema.Finite),
  month: Schema.optionalKey(Schema.Finite),
  total: Schema.optionalKey(Schema.Finite)
})

/** The object that gateways wrote before: the whole reservation. */
const WholeReservation: Schema.Codec<Reservation, unknown> = Schema.Struct({
  id: Schema.String,
  claims: Schema.Struct({
    account: Schema.Struct({ group: Schema.String, key: Schema.String }),
    limits: Schema.Struct({ rpm: Schema.Finite, tpm: Schema.Finite, concurrent: Schema.Finite }),
    budgets: StoredBudgets,
    tenantBudgets: Schema.optionalKey(StoredBudgets)
  }),
  held: Schema.Finite,
  available: Schema.Finite,
  admittedAt: Schema.Finite,
  slot: Schema.Boolean
})
const decodeWhole = Schema.decodeUnknownEffect(WholeReservation)

type StoredBudget = typeof Budget.Type

const budgetsOf = (day: StoredBudget, month: StoredBudget, total: StoredBudget): Budgets => ({
  ...(day === absent ? {} : { day }),
  ...(month === absent ? {} : { month }),
  ...(total === absent ? {} : { total })
})

/** Reads what `storedReservation` wrote into the row of request `id` of the tenant `group`. */
export const readReservation = (
  id: string,
  group: string,
  stored: unknown
): Effect.Effect<Reservation, Schema.SchemaError> =>
  typeof stored !== "string"
    ? decodeWhole(stored)
    : Effect.map(
        decodeTexts(stored.split("/")),
        ([key, held, available, admittedAt, slot, day, month, total, ofDay, ofMonth, ofTotal]) => ({
          id,
          claims: {
            ...claimsWithoutLimits({ group, key }),
            budgets: budgetsOf(day, month, total),
            tenantBudgets: budgetsOf(ofDay, ofMonth, ofTotal)
          },
          held,
          available,
          admittedAt,
          slot: slot === "1"
        })
      )
