/** An argon2id hash that costs a millisecond. It is checked like any other, because a hash says what it costs. */
import { hash } from "@node-rs/argon2"

export const quickHash = (secret: string): Promise<string> =>
  hash(secret, { memoryCost: 64, timeCost: 1, parallelism: 1 })
