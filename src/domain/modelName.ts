/** Names of models, as requests and lists compare them. */

const defaultTag = ":latest"

/** `fast` and `fast:latest` are one name. */
export const withoutDefaultTag = (name: string): string =>
  name.endsWith(defaultTag) ? name.slice(0, -defaultTag.length) : name
