/** The code of an error of Node or a client, such as `ENOENT` or `ECONNREFUSED`; undefined: it has none. */
export const codeOf = (cause: unknown): string | undefined =>
  cause instanceof Error && "code" in cause ? String(cause.code) : undefined
