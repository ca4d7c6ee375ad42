import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { InvalidValue } from "../../src/admin/Errors.ts"
import { maxScanned, type RequestDetails, Records } from "../../src/admin/records/Records.ts"
import { UnknownRequest } from "../errorMessages.ts"
import { requestTable } from "../requestLines.ts"
import { note, escapeText, show } from "../terminal.ts"

/** `tokensIn` as `tokens in` */
const words = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)

const shown = (value: unknown): string =>
  value === null ? "-" : value instanceof Date ? value.toISOString() : escapeText(String(value))

const block = (title: string, fields: object | undefined): ReadonlyArray<string> =>
  fields === undefined
    ? []
    : [title, ...Object.entries(fields).map(([name, value]) => `  ${words(name).padEnd(18)} ${shown(value)}`)]

const describe = ({ correction, open, row }: RequestDetails): string =>
  [
    ...block("audit row, as it was written", row),
    ...block("correction: what the client got, and the tokens to add", correction),
    ...block("open: it runs, or its process died and its lease ends", open)
  ].join("\n")

/** What the client got and what is charged. */
const toJson = ({ correction, open, row }: RequestDetails) => ({
  requestId: row?.requestId ?? open?.requestId ?? null,
  state: row === undefined ? "open" : "ended",
  status: correction?.status ?? row?.status ?? null,
  tokensIn: (row?.tokensIn ?? 0) + (correction?.tokensIn ?? 0),
  tokensOut: (row?.tokensOut ?? 0) + (correction?.tokensOut ?? 0),
  row: row ?? null,
  correction: correction ?? null,
  open: open ?? null
})

export const showRequest = Command.make(
  "show-request",
  {
    id: Argument.String("id").pipe(
      Argument.withDescription("The X-Request-ID of the answer, or the one that the client sent")
    )
  },
  Effect.fnUntraced(function* ({ id }) {
    if (!/^[\x21-\x7e]{1,64}$/.test(id)) {
      return yield* new InvalidValue({ field: "id", expected: "1 to 64 characters without spaces" })
    }
    const records = yield* Records
    const found = yield* records.request(id)
    const tallied = found.length === 0 ? yield* records.talliedAround(id) : []
    if (tallied.length > 0) {
      yield* note("it has no row of its own; these rows stand for several requests of that second")
    } else if (found.length === 0) {
      return yield* new UnknownRequest({ id, searched: 5 * maxScanned })
    }
    yield* show(
      { requests: found.map(toJson), tallied },
      tallied.length > 0 ? requestTable(tallied) : found.map(describe).join("\n\n")
    )
  })
).pipe(
  Command.withDescription(
    "Show all that the audit has of one request: its row, its correction, whether it is still open"
  ),
  Command.withExamples([{ command: "tollgate show-request 01a1fca4-4f59-7db5-bd9d-1ef8280fed72" }])
)
