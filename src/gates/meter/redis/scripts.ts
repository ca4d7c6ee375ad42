/**
 * The operations of the Meter: each is one Lua script, one round trip and one atomic step. Its cost is mostly the number of
 * Redis commands that it calls (bench/RESULTS.md). So the numbers of an account are one packed field, and each call writes it once.
 *
 * A generation of a counter starts with the run id of the Redis process. A counter of another process comes from a snapshot or a
 * replica and may be older than earlier decisions, so it counts as missing and is loaded from the ledger.
 */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { Record } from "effect"
import { periods } from "../../../domain/Limits.ts"
import { groupMs, windowMs, lapsedMost, usersKeptMs } from "../bounds.ts"
import { limitNames } from "../verdicts.ts"

/** Constants of the scripts. They are inserted as numbers: as local variables Lua would capture them at each call. */
const figures: { readonly [name: string]: number } = {
  WINDOW_MS: windowMs,
  GROUP_MS: groupMs,
  MOST_LAPSED: lapsedMost,
  USERS_KEPT_MS: usersKeptMs,
  PERIODS: periods.length,
  // Numbers that the requests of a section share (state.lua), before the limits and before the budgets.
  BEFORE_LIMITS: 11,
  BEFORE_CLAIMS: 17,
  // The limits of an account, and the claim of each in a refusal.
  LIMITS: limitNames.length,
  BY_REQUESTS: 1 + limitNames.indexOf("requests"),
  BY_TOKENS: 1 + limitNames.indexOf("tokens"),
  BY_SLOTS: 1 + limitNames.indexOf("concurrency")
}

const read = (name: string): string =>
  readFileSync(path.join(import.meta.dirname, `${name}.lua`), "utf8").replaceAll(/\b[A-Z_]+\b/g, (word) =>
    String(figures[word] ?? word)
  )

/**
 * Keys of an account
 * - account, a hash: field `w` packs sums and what is due; fields `r` and `t` are the windows of requests and tokens, as text
 *   (`state.lua`); fields `h<id>` are what running requests hold (`slot:tokens:until`; `0:tokens:0` once the lease has ended and
 *   only the hold is left). One key, so it is lost as a whole or not at all.
 * - record, a string per request: what it holds and where it was counted; `x` once it is over (a tombstone).
 * - day, week, month, total, a string each: `tokens:held:at:generation`, `at` being when it was loaded. The group has the same four,
 *   for the budgets that its accounts share.
 * - users, a sorted set: the users of the account that have accounts of their own, by the time until which these are kept.
 */
const start = read("start")
const state = read("state")
const account = read("account")
const group = read("group")
const batch = read("batch")

/** Redis reads the flags from the first line. */
const scriptOf = (verb: string, before: string, after = ""): string => {
  const text = read(verb)
  const end = text.indexOf("\n") + 1
  return text.slice(0, end) + before + text.slice(end) + after
}

/**
 * A script of an account: `start.lua`, `state.lua`, and a function `main` of `account.lua`, the file of its operation as the function
 * `operate`, and `batch.lua`, which runs it for each request of the call. A script of a group has `group.lua` instead.
 *
 * Redis makes all functions of a script at each call. Lua looks for each variable that a function uses in the list of all
 * variables of the enclosing function. In `main` the variables of `start.lua` and `state.lua` need no such search: a call takes 5 µs
 * less.
 */
const aboutAccount = (verb: string): string =>
  scriptOf(
    verb,
    `${start + state}local function main()\n${account}local function operate()\n`,
    `end\n${batch}end\nreturn main()\n`
  )

/**
 * The operations on an account, and how many calls of each one command may have. Redis serves nobody else while a script runs. 24
 * requests of 24 accounts take it about 1 ms, of one account 0.3 ms.
 */
export const callsAtOnce = {
  reserve: 24,
  renew: 24,
  settle: 24,
  cancel: 24,
  peek: 24,
  survey: 1,
  repair: 1
} as const

export type AccountVerb = keyof typeof callsAtOnce

export const accountScripts = Record.map(callsAtOnce, (_, verb) => aboutAccount(verb))

/** Of a group, and `load`. */
export const otherScripts = {
  surveyGroup: scriptOf("surveyGroup", start + group),
  repairGroup: scriptOf("repairGroup", start + group),
  load: scriptOf("load", start)
} as const
