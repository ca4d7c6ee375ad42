import { Effect } from "effect"

/** Variables of the environment that the process gets, and gives back with the scope. */
export const ownEnvironment = (values: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const before = Object.keys(values).map((name) => [name, process.env[name]] as const)
      Object.assign(process.env, values)
      return before
    }),
    (before) =>
      Effect.sync(() => {
        for (const [name, value] of before) {
          if (value === undefined) delete process.env[name]
          else process.env[name] = value
        }
      })
  )
