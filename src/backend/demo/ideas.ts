/** What the empty playground offers to ask. The demo model has a written answer to each: `answers.ts`. */
export const ideas = {
  table: { label: "A table", prompt: "Compare three sorting algorithms in a table" },
  code: { label: "A code block", prompt: "Show me quicksort in Python" },
  poem: { label: "A short poem", prompt: "Write a short poem about a patient gatekeeper" }
} as const
