/**
 * Seals the `context` of generate: the token ids of the conversation, which a client sends back to continue. As text
 * they would show the system prompt and the template of the model, and an unknown id crashes the model server. So a
 * client gets them sealed, as a list of whole numbers, and only a context that was sealed for the same key and model
 * is accepted.
 *
 * *Details* AES-256-GCM with a key derived from the shared secret for each API key, and a random nonce. The sealed
 * part has the digest of the model and the ids. The list starts with the number of bytes; then each number holds
 * three bytes.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes } from "node:crypto"
import { Effect } from "effect"
import { BadRequest, type Unavailable } from "../../../domain/Errors.ts"
import type { DecodedRequest } from "../../../domain/Inference.ts"
import type { ContextSecret } from "../../../secrets/ContextSecret.ts"
import type { SealContext } from "../Dialect.ts"

/** The key and the model that a context belongs to. */
export interface SealedFor {
  readonly keyId: string
  /** of the model; another version of it may have another vocabulary */
  readonly digest: string
}

export interface OpenedContext {
  readonly digest: string
  readonly ids: ReadonlyArray<number>
}

/** Maximal count of numbers in a sealed context: about 130,000 tokens. A longer one is neither sent nor accepted. */
export const maxContextNumbers = 131_072
/** Three bytes. */
export const maxContextNumber = 0xff_ff_ff

const nonceBytes = 12
const tagBytes = 16

const keyOf = (secret: Buffer, keyId: string): Buffer => createHmac("sha256", secret).update(keyId).digest()

const toNumbers = (bytes: Buffer): ReadonlyArray<number> => {
  const numbers = [bytes.length]
  for (let at = 0; at < bytes.length; at += 3) {
    numbers.push(((bytes[at] ?? 0) << 16) | ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0))
  }
  return numbers
}

const toBytes = ([length = 0, ...numbers]: ReadonlyArray<number>): Buffer | undefined => {
  if (numbers.length !== Math.ceil(length / 3) || length < nonceBytes + tagBytes) return undefined
  const bytes = Buffer.alloc(numbers.length * 3)
  for (const [i, number] of numbers.entries()) bytes.writeUIntBE(number, i * 3, 3)
  // What fills up the last number is not sealed, so it must be as it was written.
  return bytes.subarray(length).every((byte) => byte === 0) ? bytes.subarray(0, length) : undefined
}

/** Writes each id with seven bits a byte, the last byte below 128. Most ids take two or three bytes. */
const packed = (ids: ReadonlyArray<number>): Buffer => {
  const bytes: Array<number> = []
  for (const id of ids) {
    let rest = id
    while (rest >= 0x80) {
      bytes.push((rest % 0x80) | 0x80)
      rest = Math.floor(rest / 0x80)
    }
    bytes.push(rest)
  }
  return Buffer.from(bytes)
}

const unpacked = (bytes: Buffer): ReadonlyArray<number> => {
  const ids: Array<number> = []
  let [id, factor] = [0, 1]
  for (const byte of bytes) {
    id += (byte & 0x7f) * factor
    factor *= 0x80
    if (byte < 0x80) {
      ids.push(id)
      id = 0
      factor = 1
    }
  }
  return ids
}

/** Returns undefined when the result is too long to be accepted in a request. */
export const sealContext = (
  secret: Buffer,
  { digest, keyId }: SealedFor,
  ids: ReadonlyArray<number>
): ReadonlyArray<number> | undefined => {
  const model = Buffer.from(digest).subarray(0, 255)
  const nonce = randomBytes(nonceBytes)
  const cipher = createCipheriv("aes-256-gcm", keyOf(secret, keyId), nonce)
  const sealed = [
    cipher.update(Buffer.from([model.length])),
    cipher.update(model),
    cipher.update(packed(ids))
  ]
  const numbers = toNumbers(Buffer.concat([nonce, ...sealed, cipher.final(), cipher.getAuthTag()]))
  return numbers.length <= maxContextNumbers ? numbers : undefined
}

/** Returns undefined for a context that is forged or was sealed for another key. */
export const openContext = (
  secret: Buffer,
  keyId: string,
  numbers: ReadonlyArray<number>
): OpenedContext | undefined => {
  const bytes = toBytes(numbers)
  if (bytes === undefined) return undefined
  const decipher = createDecipheriv("aes-256-gcm", keyOf(secret, keyId), bytes.subarray(0, nonceBytes), {
    authTagLength: tagBytes
  })
  decipher.setAuthTag(bytes.subarray(bytes.length - tagBytes))
  const content = decipher.update(bytes.subarray(nonceBytes, bytes.length - tagBytes))
  if (!isAuthentic(decipher)) return undefined
  const end = 1 + (content[0] ?? 0)
  return { digest: content.toString("utf8", 1, end), ids: unpacked(content.subarray(end)) }
}

const isAuthentic = (decipher: { final(): Buffer }): boolean => {
  try {
    decipher.final()
    return true
  } catch {
    // A forged context, or one of another key, is a normal result here.
    return false
  }
}

type Secret = ContextSecret["Service"]

const notOurs = new BadRequest({ detail: "context: expected what an earlier answer to this key gave" })

/** Opens the context of a request, if it has one. */
export const withContext = (
  secret: Secret,
  keyId: string,
  request: DecodedRequest
): Effect.Effect<DecodedRequest, BadRequest | Unavailable> => {
  const { sealedContext } = request
  if (sealedContext === undefined) return Effect.succeed(request)
  return Effect.flatMap(secret.read, (bytes): Effect.Effect<DecodedRequest, BadRequest> => {
    const opened = openContext(bytes, keyId, sealedContext)
    return opened === undefined
      ? notOurs
      : Effect.succeed({
          ...request,
          body: { ...request.body, context: opened.ids },
          contextDigest: opened.digest
        })
  })
}

export const noContext: SealContext = () => undefined

/** Without the secret the answer has no context, because an unsealed one could be read. */
export const sealFor = (secret: Secret, owner: SealedFor): Effect.Effect<SealContext> =>
  secret.read.pipe(
    Effect.map(
      (bytes): SealContext =>
        (ids) =>
          sealContext(bytes, owner, ids)
    ),
    Effect.catch((error) => Effect.as(Effect.logWarning("context secret unreadable", error.cause), noContext))
  )
