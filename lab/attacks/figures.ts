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

export const atMost = (point: number, attack: string, figure: string, value: number, limit: number): Row => ({
  point,
  attack,
  figure,
  value,
  limit: `≤ ${shown(limit)}`,
  right: value <= limit
})

export const atLeast = (
  point: number,
  attack: string,
  figure: string,
  value: number,
  limit: number
): Row => ({ point, attack, figure, value, limit: `≥ ${shown(limit)}`, right: value >= limit })

/** A figure without a limit. */
export const noted = (point: number, attack: string, figure: string, value: number): Row => ({
  point,
  attack,
  figure,
  value,
  limit: "",
  right: true
})

/** What an attacker met, without limits. */
export const metBy = (point: number, attack: string, met: Readonly<Record<string, number>>) =>
  Object.entries(met).map(([figure, value]) => noted(point, attack, `  ${figure}`, value))

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
