/** Loaded by the commands that need it. A package of CommonJS has names only for an import that is not made at run time. */
export { parse, stringify } from "yaml"
