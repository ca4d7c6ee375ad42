/** Addresses of clients: their plain form, the group that shares their limits, and membership of a list. */
import { type BlockList, isIP, isIPv4, isIPv6 } from "node:net"
import { Result } from "effect"
import { IpNetwork, NetAddress } from "effect/net"

const parsed = (text: string): NetAddress.IpAddress | undefined => {
  const isBracketed = text.startsWith("[") && text.endsWith("]")
  const ip = NetAddress.ipFromString(isBracketed ? text.slice(1, -1) : text)
  if (Result.isSuccess(ip)) return ip.success
  const withPort = NetAddress.inetAddressFromString(text)
  return Result.isSuccess(withPort) ? withPort.success.address : undefined
}

/**
 * The address in a text like `192.0.2.1`, `192.0.2.1:443`, `2001:DB8::1` or `[2001:db8::1]:443`, in its one short form.
 * `::ffff:c000:201` is `192.0.2.1`: an IPv4 peer on a dual-stack socket. Undefined when there is none.
 */
export const addressOf = (text: string): string | undefined => {
  if (isIPv4(text)) return text
  const address = parsed(text)
  return address === undefined ? undefined : NetAddress.formatIp(NetAddress.toCanonical(address))
}

/** The peer of a socket. An address with a zone stays as it is. */
export const peerOf = (remoteAddress = ""): string => addressOf(remoteAddress) ?? remoteAddress

/** Whether `proxies` has the address. */
export const isWithin = (proxies: BlockList, address: string): boolean => {
  const family = isIP(address)
  return family !== 0 && proxies.check(address, family === 6 ? "ipv6" : "ipv4")
}

/**
 * The group that shares the limits of an address: an IPv4 address, or the /64 of an IPv6 address, because the owner of one
 * address of a /64 has all of them.
 */
export const addressGroup = (address: string): string => {
  if (!isIPv6(address)) return address
  const [withoutZone = ""] = address.split("%")
  const network = Result.flatMap(NetAddress.ipFromString(withoutZone), (ip) => IpNetwork.fromAddress(ip, 64))
  return Result.match(network, { onFailure: () => address, onSuccess: IpNetwork.format })
}
