/**
 * One attacker, in a process of its own: `ORDER` says what it does, it says when it begins, and then its figures in
 * one JSON line.
 */
import { Schema } from "effect"
import { bodies } from "./attackers/bodies.ts"
import { callers } from "./attackers/callers.ts"
import { readers } from "./attackers/readers.ts"
import { Order } from "./attackers/sockets.ts"
import { strangers } from "./attackers/strangers.ts"

const attackers = { ...bodies, ...readers, ...callers, ...strangers }

const order = Schema.decodeUnknownSync(Schema.fromJsonString(Order))(process.env["ORDER"])
const attack = attackers[order.attack]
if (attack === undefined) throw new Error(`no such attack: ${order.attack}`)
process.stdout.write("begun\n")
const figures = await attack(order)
process.stdout.write(`${JSON.stringify(figures)}\n`, () => process.exit(0))
