// The kernels of an image for cuModuleLoadData, with their numbers of parameters. A GPU takes a cubin of its major
// architecture that is not for a later one, and of a fatbin the latest of these, or else PTX.

import { FormatError } from '../../../base/errors.js'
import { RESULT } from '../../constants.js'
import { isElf, readCubin } from '../../cubin.js'
import { type FatbinImage, isFatbin, readFatbin } from '../../fatbin.js'
import { parsePtxEntries } from '../../simulated-kernels.js'
import type { CallInterceptor } from '../call-interceptor.js'
import { ARCHITECTURE } from '../device-attributes.js'

type Entries = ReadonlyMap<string, number>

/** Throws the driver's error for an image without kernels, or without code for the device. */
export function entriesOf(image: string | Uint8Array, interceptor: CallInterceptor): Entries {
  try {
    return entriesIn(image, interceptor)
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
    throw interceptor.refuse(RESULT.CUDA_ERROR_INVALID_IMAGE, error.message)
  }
}

function entriesIn(image: string | Uint8Array, interceptor: CallInterceptor): Entries {
  if (typeof image !== 'string' && isFatbin(image))
    return entriesIn(chosenOf(readFatbin(image), interceptor), interceptor)
  if (typeof image !== 'string' && isElf(image)) {
    const { architecture, kernels } = readCubin(image)
    if (!isMachineCodeFor(architecture)) throw foreign(interceptor)
    return new Map(kernels.map(({ name, parameters }) => [name, parameters.length]))
  }
  const entries = parsePtxEntries(typeof image === 'string' ? image : new TextDecoder().decode(image))
  if (entries !== null) return entries
  throw interceptor.refuse(RESULT.CUDA_ERROR_INVALID_PTX, 'no PTX text with a .version line and an .entry')
}

function chosenOf(images: readonly FatbinImage[], interceptor: CallInterceptor): Uint8Array {
  const latestFirst = [...images].sort((a, b) => b.architecture - a.architecture)
  const chosen =
    latestFirst.find(each => each.kind === 'cubin' && isMachineCodeFor(each.architecture)) ??
    latestFirst.find(each => each.kind === 'ptx' && each.architecture <= ARCHITECTURE)
  if (chosen === undefined) throw foreign(interceptor)
  if (chosen.content !== null) return chosen.content
  const fact = 'a simulated device does not decompress; build the fatbin by nvcc --no-compress'
  throw interceptor.refuse(RESULT.CUDA_ERROR_NOT_SUPPORTED, fact)
}

function isMachineCodeFor(architecture: number): boolean {
  return architecture <= ARCHITECTURE && Math.floor(architecture / 10) === Math.floor(ARCHITECTURE / 10)
}

function foreign(interceptor: CallInterceptor): Error {
  return interceptor.refuse(RESULT.CUDA_ERROR_NO_BINARY_FOR_GPU, `no code for sm_${ARCHITECTURE}`)
}
