/** The group of an address. Limits for an address apply to its group. */
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
 * An IPv4 address, or the /64 of an IPv6 address, because the owner of one address of a /64 has all of them. Expects
 * the spelling of the socket (`plainAddress`): lower case, without leading zeros.
 */
export const addressGroup = (address: string): string =>
  isIP(address) === 6 ? `${network(address)}::/64` : address
