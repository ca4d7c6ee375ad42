/** What is checked after every test of the file that runs now. `setup.ts` registers it anew for each file. */
export const afterEachTest = new Set<() => Promise<void>>()

/** How many tests ended with these checks, in this process. */
export const counted = { tests: 0 }

/** What the test that runs now has said of itself. */
export const expected = { repairs: false }
