/** How V8's collector is set for a process that serves. */
import { setFlagsFromString } from "node:v8"
import { Effect } from "effect"

/**
 * No kind of object is put among the old ones from the start. V8 else decides for each place in the code, from how long the
 * first things lived that were made there, whether from then on they are put among the old, which only a full collection
 * looks through. Four of twenty-five processes decided so for something that holds a request, and stayed that way: pauses of
 * 17 to 20 ms four or five times a second at full load, where the others have 5. None of thirty-one did with this (`bench/RESULTS.md`).
 */
export const disablePretenuring = Effect.sync(() => setFlagsFromString("--no-allocation-site-pretenuring"))
