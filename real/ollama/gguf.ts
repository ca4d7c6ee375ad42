/** Writes GGUF version 3, the file format of llama.cpp's models: only what the models of the tests need. */
import { open } from "node:fs/promises"

export type GgufValue =
  | { readonly type: "uint32" | "int32" | "float32"; readonly value: number }
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "string"; readonly value: string }
  | { readonly type: "strings"; readonly value: ReadonlyArray<string> }
  | { readonly type: "int32s" | "float32s"; readonly value: ReadonlyArray<number> }

export interface GgufTensor {
  readonly name: string
  /** the length of a vector, rows and columns of a matrix, or more dimensions; the one that changes fastest is last */
  readonly shape: ReadonlyArray<number>
  readonly type: "f32" | "f16"
  /** row by row; absent: all zero */
  readonly values?: Float32Array
}

export interface GgufModel {
  readonly metadata: Readonly<Record<string, GgufValue>>
  readonly tensors: ReadonlyArray<GgufTensor>
}

/** The format's numbers for value types. An array's elements have a number of their own. */
const typeIds = { uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, array: 9 } as const
const tensorTypeIds = { f32: 0, f16: 1 } as const
const bytesPerElement = { f32: 4, f16: 2 } as const
const alignment = 32

const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32LE(value)
  return bytes
}
const i32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32LE(value)
  return bytes
}
const f32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeFloatLE(value)
  return bytes
}
const u64 = (value: number): Buffer => {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64LE(BigInt(value))
  return bytes
}
const text = (value: string): Buffer => {
  const bytes = Buffer.from(value)
  return Buffer.concat([u64(bytes.length), bytes])
}

const array = (element: number, items: ReadonlyArray<Buffer>): Buffer =>
  Buffer.concat([u32(typeIds.array), u32(element), u64(items.length), ...items])

const encodeValue = (entry: GgufValue): Buffer => {
  switch (entry.type) {
    case "uint32":
      return Buffer.concat([u32(typeIds.uint32), u32(entry.value)])
    case "int32":
      return Buffer.concat([u32(typeIds.int32), i32(entry.value)])
    case "float32":
      return Buffer.concat([u32(typeIds.float32), f32(entry.value)])
    case "bool":
      return Buffer.concat([u32(typeIds.bool), Buffer.from([entry.value ? 1 : 0])])
    case "string":
      return Buffer.concat([u32(typeIds.string), text(entry.value)])
    case "strings":
      return array(typeIds.string, entry.value.map(text))
    case "int32s":
      return array(typeIds.int32, entry.value.map(i32))
    case "float32s":
      return array(typeIds.float32, entry.value.map(f32))
  }
}

const elements = ({ shape }: GgufTensor): number => shape.reduce((product, length) => product * length, 1)
const byteLength = (tensor: GgufTensor): number => elements(tensor) * bytesPerElement[tensor.type]
const aligned = (length: number): number => Math.ceil(length / alignment) * alignment

/** Half precision, rounded to nearest; what is too small for it becomes zero. */
const toHalf = (value: number): number => {
  const [bits = 0] = new Uint32Array(new Float32Array([value]).buffer)
  const sign = (bits >>> 16) & 0x8000
  const exponent = ((bits >>> 23) & 0xff) - 127 + 15
  if (exponent <= 0) return sign
  if (exponent >= 31) return sign | 0x7c00
  return sign | ((exponent << 10) + (((bits & 0x7fffff) + 0x1000) >>> 13))
}

const encodeTensor = (tensor: GgufTensor, values: Float32Array): Buffer => {
  const bytes = Buffer.alloc(byteLength(tensor))
  for (const [i, value] of values.entries()) {
    if (value === 0) continue
    if (tensor.type === "f32") bytes.writeFloatLE(value, i * 4)
    else bytes.writeUInt16LE(toHalf(value), i * 2)
  }
  return bytes
}

const headOf = ({ metadata, tensors }: GgufModel): { readonly head: Buffer; readonly end: number } => {
  const entries = Object.entries(metadata)
  const parts = [Buffer.from("GGUF"), u32(3), u64(tensors.length), u64(entries.length)]
  for (const [key, value] of entries) parts.push(text(key), encodeValue(value))
  let offset = 0
  for (const tensor of tensors) {
    // The format counts the fastest dimension first: columns, then rows.
    const dimensions = tensor.shape.toReversed().map(u64)
    parts.push(text(tensor.name), u32(dimensions.length), ...dimensions)
    parts.push(u32(tensorTypeIds[tensor.type]), u64(offset))
    offset += aligned(byteLength(tensor))
  }
  return { head: Buffer.concat(parts), end: offset }
}

/** Tensors without values are holes of the file: a model of hundreds of megabytes is written at once. */
export const writeGguf = async (file: string, model: GgufModel): Promise<void> => {
  const { head, end } = headOf(model)
  const start = aligned(head.length)
  const handle = await open(file, "w")
  try {
    await handle.write(head, 0, head.length, 0)
    await handle.truncate(start + end)
    let at = start
    for (const tensor of model.tensors) {
      if (tensor.values !== undefined) {
        const bytes = encodeTensor(tensor, tensor.values)
        await handle.write(bytes, 0, bytes.length, at)
      }
      at += aligned(byteLength(tensor))
    }
  } finally {
    await handle.close()
  }
}
