/** Whom an address belongs to, as far as it tells: limits that are per address are per group. */
import { isIP } from "node:net"

/** The first four groups of eight of an IPv6 address; `::` stands for as many zeros as are missing. */
const network = (address: string): string => {
  const [head = "", tail] = (address.split("%")[0] ?? "").split("::")
  const front = head === "" ? [] : head.split(":")
  if (tail === undefined) return front.slice(0, 4).join(":")
  const back = tail === "" ? [] : tail.split(":")
  // An IPv4 tail stands for two groups, and never reaches into the first four of a whole address.
  const missing = 8 - front.length - back.length - (tail.includes(".") ? 1 : 0)
  return [...front, ...Array.from({ length: Math.max(0, missing) }, () => "0"), ...back].slice(0, 4).join(":")
}

/**
 * An IPv4 address, or the /64 of an IPv6 address: whoever has one address of it has them all. Expects the spelling of
 * the socket (`plainAddress`), which is in lower case and without leading zeros.
 */
export const addressGroup = (address: string): string =>
  isIP(address) === 6 ? `${network(address)}::/64` : address
