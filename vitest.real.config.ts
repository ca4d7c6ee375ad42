import { defineConfig } from "vitest/config"
import base from "./vitest.config.ts"

/** The suite that wants a real model server: never part of `npm test`, because no machine may need one to pass. */
export default defineConfig({
  ...base,
  test: { ...base.test, include: ["real/*.real.ts"], testTimeout: 600_000 }
})
