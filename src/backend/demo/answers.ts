/** What the demo model says: written answers to the ideas of the playground, an echo to everything else. */
import { Struct } from "effect"
import { ideas } from "./ideas.ts"

const sorting = `Three algorithms that you meet most often, for *n* items:

| Algorithm | Typical time | Worst time | Extra memory | Stable |
|:----------|:------------:|:----------:|:------------:|:------:|
| Insertion sort | n² | n² | 1 | yes |
| Merge sort | n log n | n log n | n | yes |
| Quicksort | n log n | n² | log n | no |

**Which one to take:**

- **Insertion sort** for a few dozen items, or a list that is almost sorted: its inner loop then hardly runs.
- **Merge sort** when equal items must keep their order, or when the data does not fit into memory.
- **Quicksort** for plain arrays in memory; a random pivot makes its worst case very unlikely.

> Most standard libraries mix them. Python's \`sorted\` is a merge sort that switches to insertion sort for short runs.

*I am the demo model built into Tollgate, and this answer was written in advance.*`

const quicksort = `Quicksort picks a pivot, splits the list around it, and sorts both parts the same way:

\`\`\`python
import random


def quicksort(items: list[int]) -> list[int]:
    """Returns the items in ascending order."""
    if len(items) <= 1:
        return items
    pivot = random.choice(items)
    smaller = [x for x in items if x < pivot]
    equal = [x for x in items if x == pivot]
    larger = [x for x in items if x > pivot]
    return quicksort(smaller) + equal + quicksort(larger)


print(quicksort([3, 1, 4, 1, 5, 9, 2, 6]))  # [1, 1, 2, 3, 4, 5, 6, 9]
\`\`\`

How it works:

1. A list of one item is sorted already.
2. A **random pivot** keeps an input that is already sorted from being the worst case.
3. Items that equal the pivot need no more sorting, so \`equal\` is left as it is.

It takes *n* log *n* steps on average.

*I am the demo model built into Tollgate, and this answer was written in advance.*`

const poem = `### The Gatekeeper

He counts each token, night and day,  
and never hurries those who stay;  
a key, a name, a budget's end —  
he greets them all, and lets them spend.

When someone asks for more than theirs,  
he points to where the limit stares:  
*“Come back within a minute's time.  
The gate will open. So will rhyme.”*

*I am the demo model built into Tollgate, and this poem was written in advance.*`

/** The type asks for an answer to each idea. */
const answers = { table: sorting, code: quicksort, poem } satisfies Readonly<
  Record<keyof typeof ideas, string>
>

/** Case, spaces around it and the mark at its end do not change a question. */
const plain = (text: string): string =>
  text
    .trim()
    .replace(/(?<![.!?])[.!?]+$/, "")
    .toLowerCase()

const written: ReadonlyMap<string, string> = new Map(
  Struct.keys(answers).map((idea) => [plain(ideas[idea].prompt), answers[idea]])
)

const echo = (text: string): string => {
  const quoted = text.replaceAll(/\s+/g, " ").trim()
  const short = [...quoted].slice(0, 160).join("")
  return (
    `You said: “${short}${short === quoted ? "" : "…"}”. ` +
    "I am the demo model built into Tollgate: I cannot think, but every limit, budget and token count around this " +
    "answer is real. Set BACKEND_URL to your own model server to talk to a real one."
  )
}

export const replyTo = (text: string): string => written.get(plain(text)) ?? echo(text)
