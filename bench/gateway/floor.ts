/** The floor: node:http and undici with no logic at all. */
import { servePipe } from "./pipe.ts"

const atOnce = (end: () => void): void => end()

servePipe({ request: (forward) => forward(atOnce) })
