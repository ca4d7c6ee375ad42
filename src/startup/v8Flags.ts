/** Settings of V8's garbage collector for a serving process. */
import { setFlagsFromString } from "node:v8"
import { Effect } from "effect"

/**
 * Disables V8's allocation-site pretenuring. With it, V8 decides for each place in the code, from the lifetime of the first
 * objects made there, whether to put all later ones into old space, which only a full collection cleans. 4 of 25 processes
 * did so for objects that hold a request: they paused for 17 to 20 ms four or five times a second at full load; the others
 * paused for 5 ms. With this flag none of 31 processes did.
 */
const disablePretenuring = "--no-allocation-site-pretenuring"

/**
 * Lets V8 make room for young objects when there are many. `build/start.js` forbids it while the gateway is loaded: the 16 to 32
 * MB that loading needs would stay for as long as the gateway is idle (130 MB instead of 111, measured with `npm start`).
 * Requests need them: with 4 MB a request takes a quarter more CPU than with 16. 2 is V8's own factor.
 */
const growYoungGeneration = "--semi-space-growth-factor=2"

/**
 * Lets old space grow to twice of what is alive, and by half of the young generation, before it is collected. V8's own factor
 * depends on the memory of the machine: on one of 16 GiB or more, old space may grow to four times of what is alive. Clients
 * that leave while a store is slow took 435 to 526 MiB there, and 371 with this flag and one arena of malloc. With 40 percent
 * it was 334 to 354, but embeddings took 30 % more CPU: their texts are large, and each makes a collection due.
 */
const growOldGeneration = "--heap-growing-percent=100"

/** Must run when the gateway is loaded, before it serves. */
export const prepareToServe = Effect.sync(() => {
  for (const flag of [disablePretenuring, growYoungGeneration, growOldGeneration]) setFlagsFromString(flag)
})
