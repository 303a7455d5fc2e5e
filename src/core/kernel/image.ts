// The image that a program gives to `device.loadModule`: PTX text, a cubin or a fatbin. Its kernels are read before the
// driver loads it, so that launches can be checked. A cubin has no types: a parameter of 2, 4 or 8 bytes is `untyped`
// until the program declares it (declared-signature.ts).

import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { CudaError, FormatError } from '../base/errors.js'
import { isUint8Array } from '../base/typed-arrays.js'
import { RESULT } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import { type CubinKernel, isElf, readCubin } from '../driver/cubin.js'
import { isFatbin, readFatbin } from '../driver/fatbin.js'
import { type KernelSignature, kernelsOf } from './ptx.js'

export interface LoadableImage {
  /** loaded by the driver; bytes are a copy */
  readonly image: string | Uint8Array
  readonly signatures: readonly KernelSignature[]
}

/** Throws TypeError for a value of another type, and FormatError for an image that cannot be read. */
export function readImage(given: unknown): LoadableImage {
  if (typeof given === 'string') return { image: given, signatures: kernelsOf(given) }
  if (!isUint8Array(given)) {
    throw new WrongTypeError(
      `loadModule: image must be PTX text, or a cubin or fatbin as a Uint8Array, not ${describe(given)}`,
    )
  }
  const image = new Uint8Array(given)
  return { image, signatures: signaturesOf(image) }
}

function signaturesOf(image: Uint8Array): KernelSignature[] {
  if (image.length === 0) throw new FormatError('loadModule: the image is empty')
  if (isElf(image)) return readCubin(image).kernels.map(untyped)
  if (!isFatbin(image)) {
    throw new FormatError(
      "loadModule: the image is neither a cubin nor a fatbin; give PTX as a text, as of readFileSync(path, 'utf8')",
    )
  }
  const images = readFatbin(image)
  const readable = (kind: 'ptx' | 'cubin') => images.find(each => each.kind === kind && each.content !== null)?.content
  const ptx = readable('ptx')
  if (ptx != null) return kernelsOf(new TextDecoder().decode(ptx))
  const cubin = readable('cubin')
  if (cubin != null) return readCubin(cubin).kernels.map(untyped)
  throw new FormatError(
    'loadModule: all images of the fatbin are compressed, so that the parameters of its kernels cannot be checked; ' +
      'build it by nvcc --no-compress, or load a cubin',
  )
}

/** The signature of a kernel in machine code, whose parameters have numbers for names. */
function untyped({ name, parameters }: CubinKernel): KernelSignature {
  const { byteOffset = 0, byteLength = 0 } = parameters.at(-1) ?? {}
  return {
    name,
    parameters: parameters.map((place, index) => ({
      ...place,
      name: `parameter ${index}`,
      kind: kindOf(place.byteLength),
    })),
    byteLength: byteOffset + byteLength,
  }
}

/** A number of 1 byte is an integer. Other sizes than those of numbers are structures. */
function kindOf(byteLength: number): 'unsigned' | 'untyped' | 'bytes' {
  if (byteLength === 1) return 'unsigned'
  return [2, 4, 8].includes(byteLength) ? 'untyped' : 'bytes'
}

/** The driver's error; if the device can run no code of the image, one that names the GPUs of the code. */
export function explainedLoad(error: unknown, image: string | Uint8Array, context: Context): unknown {
  const isForeign = error instanceof CudaError && error.result === RESULT.CUDA_ERROR_NO_BINARY_FOR_GPU
  if (!isForeign || typeof image === 'string') return error
  const major = context.attribute('CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR')
  const minor = context.attribute('CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR')
  const detail =
    `the image has code for ${targetsOf(image)}, and the device has compute capability ${major}.${minor}; ` +
    `build it for sm_${major}${minor}, or add PTX`
  return new CudaError(error.call, error.result, error.resultName, detail, { cause: error })
}

/** Such as `sm_90, compute_90`. */
function targetsOf(image: Uint8Array): string {
  if (isElf(image)) return `sm_${readCubin(image).architecture}`
  const targets = readFatbin(image).map(
    ({ kind, architecture }) => `${kind === 'ptx' ? 'compute' : 'sm'}_${architecture}`,
  )
  return targets.join(', ')
}
