/**
 * The form of a test's name: "when …, then …". In a `describe` that begins with "when", the test may begin with "then".
 * `name` is the whole name, with " > " between the suites and the test.
 */
export const isTestName = (name: string): boolean => {
  const parts = name.split(" > ")
  const last = parts.findLastIndex((part) => part.startsWith("when ") || part.startsWith("then "))
  const own = parts.slice(last).join(" > ")
  return own.startsWith("then ")
    ? parts.slice(0, last).some((part) => part.startsWith("when "))
    : /^when \S.*, then \S/s.test(own)
}
