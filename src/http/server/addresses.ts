/** Addresses of clients: their plain form, the group that shares their limits, and membership of a list. */
import { type BlockList, isIP } from "node:net"

/** `::ffff:127.0.0.1` is `127.0.0.1`: an IPv4 peer on a dual-stack socket. */
export const plainAddress = (address: string): string =>
  address.startsWith("::ffff:") && isIP(address.slice(7)) === 4 ? address.slice(7) : address

/** Whether `proxies` has the address. */
export const isWithin = (proxies: BlockList, address: string): boolean => {
  const family = isIP(address)
  return family !== 0 && proxies.check(address, family === 6 ? "ipv6" : "ipv4")
}

/** The first four groups of eight of an IPv6 address; `::` stands for as many zeros as are missing. */
const network = (address: string): string => {
  const [head = "", tail] = (address.split("%")[0] ?? "").split("::")
  const front = head === "" ? [] : head.split(":")
  if (tail === undefined) return front.slice(0, 4).join(":")
  const back = tail === "" ? [] : tail.split(":")
  // An IPv4 tail stands for two groups. It never reaches the first four groups.
  const missing = 8 - front.length - back.length - (tail.includes(".") ? 1 : 0)
  return [...front, ...Array.from({ length: Math.max(0, missing) }, () => "0"), ...back].slice(0, 4).join(":")
}

/**
 * The group that shares the limits of an address: an IPv4 address, or the /64 of an IPv6 address, because the owner of one address of a /64 has all of them. Expects
 * the spelling of the socket (`plainAddress`): lower case, without leading zeros.
 */
export const addressGroup = (address: string): string =>
  isIP(address) === 6 ? `${network(address)}::/64` : address
