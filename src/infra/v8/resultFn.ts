import { Result } from "effect"

/**
 * `Result.gen` for a function that is called for each request. Its generator function is made once.
 *
 * V8 makes a hidden class for each generator function when it is first called, in old space. When the generator function is
 * written inside another function, each call of that one makes a new generator function. It costs 0.8 µs more, and the
 * hidden class keeps the generator function, and so all it refers to, here the decoded request, until the next full
 * collection. `test/unit/infra/v8/resultFn.test.ts` shows it.
 */
export const resultFn =
  <Args extends ReadonlyArray<unknown>, K extends Result.Result<unknown, unknown>, A>(
    body: (...args: Args) => Generator<K, A, never>
  ) =>
  (...args: Args) =>
    Result.gen(() => body(...args))
