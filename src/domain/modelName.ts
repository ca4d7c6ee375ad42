/** Names of models, as requests and lists compare them. */

const defaultTag = ":latest"

/** As model servers list it. */
export const withTag = (name: string): string =>
  name.lastIndexOf(":") > name.lastIndexOf("/") ? name : `${name}${defaultTag}`

/** `fast` and `fast:latest` are one name. */
export const withoutDefaultTag = (name: string): string =>
  name.endsWith(defaultTag) ? name.slice(0, -defaultTag.length) : name
