/** Settings of V8's garbage collector for a serving process. */
import { setFlagsFromString } from "node:v8"
import { Effect } from "effect"

/**
 * Disables V8's allocation-site pretenuring. With it, V8 decides for each place in the code, from the lifetime of the first
 * objects made there, whether to put all later ones into old space, which only a full collection cleans. 4 of 25 processes
 * did so for objects that hold a request: they paused for 17 to 20 ms four or five times a second at full load; the others
 * paused for 5 ms. With this flag none of 31 processes did (`bench/RESULTS.md`).
 */
export const disablePretenuring = Effect.sync(() => setFlagsFromString("--no-allocation-site-pretenuring"))
