/**
 * Seals the `context` of generate: the token ids of the conversation, which a client sends back to continue. As text
 * they would show the system prompt and the template of the model, and an unknown id crashes the model server. So a
 * client gets them sealed, as a list of whole numbers, and only a context that was sealed for the same key and model
 * is accepted.
 *
 * *Details* AES-256-GCM with a key derived from the shared secret for each API key, and a random nonce. The sealed
 * part has the digest of the model and the ids. A number of the list holds three bytes, and so does a sealed id: no
 * vocabulary comes near 16 million.
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

/** Maximal count of numbers in a sealed context: about 131,000 tokens. A longer one is neither sent nor accepted. */
export const maxContextNumbers = 131_072
/** Three bytes. */
export const maxContextNumber = 0xff_ff_ff

/** The lengths are multiples of three. */
const nonceBytes = 12
const digestBytes = 80
const tagBytes = 16

const keyOf = (secret: Buffer, keyId: string): Buffer => createHmac("sha256", secret).update(keyId).digest()

const toNumbers = (bytes: Buffer): ReadonlyArray<number> =>
  Array.from({ length: bytes.length / 3 }, (_, i) => bytes.readUIntBE(i * 3, 3))

const toBytes = (numbers: ReadonlyArray<number>): Buffer => {
  const bytes = Buffer.alloc(numbers.length * 3)
  for (const [i, number] of numbers.entries()) bytes.writeUIntBE(number, i * 3, 3)
  return bytes
}

/** Returns undefined for what a list which is accepted in a request cannot hold. */
export const sealContext = (
  secret: Buffer,
  { digest, keyId }: SealedFor,
  ids: ReadonlyArray<number>
): ReadonlyArray<number> | undefined => {
  const length = (nonceBytes + digestBytes + tagBytes) / 3 + ids.length
  if (length > maxContextNumbers || ids.some((id) => id > maxContextNumber)) return undefined
  if (Buffer.byteLength(digest) > digestBytes) return undefined
  const model = Buffer.alloc(digestBytes)
  model.write(digest)
  const nonce = randomBytes(nonceBytes)
  const cipher = createCipheriv("aes-256-gcm", keyOf(secret, keyId), nonce)
  const sealed = [cipher.update(model), cipher.update(toBytes(ids)), cipher.final()]
  return toNumbers(Buffer.concat([nonce, ...sealed, cipher.getAuthTag()]))
}

/** Returns undefined for a context that is forged or was sealed for another key. */
export const openContext = (
  secret: Buffer,
  keyId: string,
  numbers: ReadonlyArray<number>
): OpenedContext | undefined => {
  const bytes = toBytes(numbers)
  if (bytes.length < nonceBytes + digestBytes + tagBytes) return undefined
  const decipher = createDecipheriv("aes-256-gcm", keyOf(secret, keyId), bytes.subarray(0, nonceBytes), {
    authTagLength: tagBytes
  })
  decipher.setAuthTag(bytes.subarray(bytes.length - tagBytes))
  const content = decipher.update(bytes.subarray(nonceBytes, bytes.length - tagBytes))
  if (!isAuthentic(decipher)) return undefined
  return {
    digest: content.toString("utf8", 0, digestBytes).replaceAll("\0", ""),
    ids: toNumbers(content.subarray(digestBytes))
  }
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
