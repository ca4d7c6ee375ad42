/** Icons, each a path in a square of 24. */
export const icons = {
  new: "M12 5v14M5 12h14",
  code: "m8 7-5 5 5 5M16 7l5 5-5 5",
  settings:
    "M4 7h9M19 7h1M4 17h1M11 17h9M13.4 7a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0-5.2 0M5.4 17a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0-5.2 0",
  theme: "M4 12a8 8 0 1 0 16 0a8 8 0 1 0-16 0M12 4a8 8 0 0 0 0 16z",
  close: "m6 6 12 12M18 6 6 18",
  copy: "M11 9h7a2 2 0 0 1 2 2v7a2 2 0 0 1-2 2h-7a2 2 0 0 1-2-2v-7a2 2 0 0 1 2-2zM5 15H4V6a2 2 0 0 1 2-2h9v1",
  done: "m5 12.5 4.5 4.5L19 7.5",
  edit: "M4 20v-4L15.5 4.5l4 4L8 20zM13 7l4 4",
  again: "M19 12a7 7 0 1 1-2-5l2 2M19 4v5h-5",
  delete: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  image:
    "M6 5h12a2 2 0 0 1 2 2v10a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2V7a2 2 0 0 1 2-2zM7.4 10a1.6 1.6 0 1 0 3.2 0a1.6 1.6 0 1 0-3.2 0M5 18l5-5 3 3 3-3 3 3",
  send: "M12 20V5M5.5 11.5 12 5l6.5 6.5",
  stop: "M8.5 7h7a1.5 1.5 0 0 1 1.5 1.5v7a1.5 1.5 0 0 1-1.5 1.5h-7A1.5 1.5 0 0 1 7 15.5v-7A1.5 1.5 0 0 1 8.5 7z",
  key: "M4 12a4 4 0 1 0 8 0a4 4 0 1 0-8 0M12 12h9M18 12v4"
}

/** Those whose area has the colour, not their line alone. */
export const filled = ["theme", "stop"]
