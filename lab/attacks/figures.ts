/** One figure of one attack, with the limit it has to keep. */
export interface Row {
  readonly point: number
  readonly attack: string
  readonly figure: string
  readonly value: number
  readonly limit: string
  readonly right: boolean
}

const shown = (value: number): string =>
  Number.isInteger(value) ? String(value) : value.toFixed(value < 10 ? 2 : 1)

/** The rows of one attack. */
export const rowsOf = (point: number, attack: string) => {
  const row = (figure: string, value: number, limit: string, right: boolean): Row => ({
    point,
    attack,
    figure,
    value,
    limit,
    right
  })
  /** A figure without a limit. */
  const noted = (figure: string, value: number) => row(figure, value, "", true)
  return {
    atMost: (figure: string, value: number, limit: number) =>
      row(figure, value, `≤ ${shown(limit)}`, value <= limit),
    atLeast: (figure: string, value: number, limit: number) =>
      row(figure, value, `≥ ${shown(limit)}`, value >= limit),
    noted,
    /** What an attacker met, without limits. */
    met: (met: Readonly<Record<string, number>>) =>
      Object.entries(met).map(([figure, value]) => noted(`  ${figure}`, value))
  }
}
export type Rows = ReturnType<typeof rowsOf>

export const lineOf = ({ attack, figure, limit, point, right, value }: Row): string =>
  [
    String(point).padStart(2),
    attack.padEnd(52),
    figure.padEnd(38),
    shown(value).padStart(10),
    limit.padEnd(10),
    limit === "" ? "" : right ? "ok" : "MISSED"
  ].join("  ")

/** The same as a table of a Markdown page. */
export const markdown = (rows: ReadonlyArray<Row>): string =>
  [
    "| Point | Attack | Figure | Value | Limit | |",
    "|---|---|---|---|---|---|",
    ...rows.map(
      ({ attack, figure, limit, point, right, value }) =>
        `| ${point} | ${attack} | ${figure} | ${shown(value)} | ${limit} | ${limit === "" ? "" : right ? "ok" : "**missed**"} |`
    ),
    ""
  ].join("\n")
