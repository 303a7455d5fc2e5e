// Cubins and fatbins on a real GPU. The tests fail without a GPU; those that compile are skipped without NVRTC.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { NoLibraryError } from '../base/errors.js'
import { readCubin } from '../driver/cubin.js'
import { CUBIN_75, CUBIN_90, FATBIN, IMAGE_SOURCE } from '../driver/images.fixture.js'
import { openNvrtc } from '../libraries/nvrtc.js'
import { TestGpu } from '../order/gpu.fixture.js'
import { Module } from './module.js'
import { kernelsOf } from './ptx.js'

const TAKE = 'double *out, int a, float b, double c, unsigned char d, short e, Triple f'

const gpu = new TestGpu()
const memory = gpu.driver.cuMemAlloc(4096)
after(() => {
  gpu.context.activate().cuMemFree(memory)
  gpu.close()
})

const major = gpu.context.attribute('CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR')
const minor = gpu.context.attribute('CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR')

/** The fixture's source, compiled by NVRTC for this GPU; if there is no NVRTC, the reason. */
function compiled(): { ptx: string; cubin: Uint8Array } | string {
  try {
    const compiler = openNvrtc(gpu.driver.cuDriverGetVersion())
    const request = { source: IMAGE_SOURCE, name: 'image.cu', headers: {}, expressions: [] }
    const { ptx, cubin } = compiler.compile({ ...request, options: [`--gpu-architecture=sm_${major}${minor}`] })
    return { ptx, cubin: cubin! }
  } catch (error) {
    if (error instanceof NoLibraryError) return error.message
    throw error
  }
}

function load(image: Uint8Array): Module {
  return new Module(gpu.context, gpu.defaultStream, image)
}

function words(count: number): number[] {
  gpu.driver.cuCtxSynchronize()
  const host = new Uint32Array(count)
  gpu.driver.cuMemcpyDtoH(host, memory)
  return [...host]
}

/** Fills four words by the kernel image_fill. */
function fills(module: Module, value: number): void {
  const kernel = module.kernel('image_fill', { parameters: 'unsigned *target, unsigned count, unsigned value' })
  kernel.launch({ grid: 1, block: 32 }, { ptr: memory }, 4, value)
  assert.deepEqual(words(4), Array(4).fill(value))
}

const made = compiled()

describe('a compiled cubin on a GPU', { skip: typeof made === 'string' && made }, () => {
  const { ptx, cubin } = made as Exclude<typeof made, string>

  it('has the parameters that its PTX declares', () => {
    const places = (kernels: ReturnType<typeof kernelsOf> | ReturnType<typeof readCubin>['kernels']) =>
      Object.fromEntries(
        kernels.map(({ name, parameters }) => [
          name,
          parameters.map(({ byteOffset, byteLength }) => [byteOffset, byteLength]),
        ]),
      )
    assert.equal(readCubin(cubin).architecture, major * 10 + minor)
    assert.deepEqual(places(readCubin(cubin).kernels), places(kernelsOf(ptx)))
  })

  it('is loaded and launched', () => {
    using module = load(cubin)
    fills(module, 7)
    const structure = new Uint8Array(new Float32Array([1, 2.5, 3]).buffer)
    module
      .kernel('image_take', { parameters: TAKE })
      .launch({ grid: 1, block: 1 }, { ptr: memory }, -5, 0.5, 0.1, 200, -300, structure)
    assert.deepEqual(new Float64Array(new Uint32Array(words(2)).buffer)[0], 2.5)
  })
})

describe('images on a GPU', () => {
  it('code for another GPU is refused, and the error names the GPU of the code', () => {
    const [foreign, target] = major === 7 ? [CUBIN_90, 'sm_90'] : [CUBIN_75, 'sm_75']
    assert.throws(() => load(foreign), {
      name: 'CudaError',
      message: new RegExp(`code for ${target}, and the device has compute capability ${major}\\.${minor}`),
    })
  })

  it('a fatbin is loaded, by its machine code or its PTX', {
    skip: major < 9 && 'its code is for 9.0 and later',
  }, () => {
    using module = load(FATBIN)
    fills(module, 9)
  })
})
