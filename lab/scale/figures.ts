/** A figure of a run, and whether it is as it has to be. */
export interface Figure {
  readonly name: string
  readonly value: number | string
  readonly right: boolean
}

export const figure = <A extends number | string>(
  name: string,
  value: A,
  holds: (value: A) => boolean = () => true
): Figure => ({ name, value, right: holds(value) })

export const percentile = (values: ReadonlyArray<number>, share: number): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN

const shown = (value: number | string): string =>
  typeof value === "number" && !Number.isInteger(value) ? value.toFixed(1) : String(value)

export const table = (title: string, figures: ReadonlyArray<Figure>): string => {
  const width = Math.max(...figures.map(({ name }) => name.length))
  const lines = figures.map(
    ({ name, value, right }) =>
      `  ${name.padEnd(width)}  ${shown(value).padStart(12)}${right ? "" : "  WRONG"}`
  )
  return [title, ...lines, ""].join("\n")
}
