/** How often a header was sent. Node keeps the first of some, joins others, and tells of neither. */
import type { IncomingMessage } from "node:http"

/** `name` in lower case */
export const headerCount = ({ rawHeaders }: IncomingMessage, name: string): number => {
  let count = 0
  for (let i = 0; i < rawHeaders.length; i += 2) if (rawHeaders[i]?.toLowerCase() === name) count += 1
  return count
}
