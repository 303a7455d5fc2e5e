// cuBLAS multiplies matrices that lie in a pool, with a workspace from the same pool: first on a stream, then in a
// graph. It needs a GPU and cuBLAS, which comes with CUDA, PyTorch or CuPy; CUDA_MEMPOOL_CUBLAS names the library.
// In a clone: npm run build && node dist/examples/cublas.js

import { MiB, NoDeviceError, openDevice } from 'cuda-mempool'
import koffi from 'koffi'

const [ROWS, INNER, COLUMNS] = [300, 200, 100]
const LAUNCHES = 3
/** Enough for the kernels of all present GPUs, says cuBLAS's documentation. */
const WORKSPACE_BYTES = 32 * MiB
const NO_TRANSPOSE = 0
const NAMES = [
  process.env.CUDA_MEMPOOL_CUBLAS,
  'libcublas.so.13',
  'libcublas.so.12',
  '/usr/local/cuda/lib64/libcublas.so',
]

/** The functions of cuBLAS that this program calls. Addresses and handles are numbers. */
function openCublas() {
  for (const name of NAMES) {
    try {
      const library = koffi.load(name ?? '')
      return {
        create: library.func('int cublasCreate_v2(_Out_ uintptr_t *handle)'),
        destroy: library.func('int cublasDestroy_v2(uintptr_t handle)'),
        setStream: library.func('int cublasSetStream_v2(uintptr_t handle, uintptr_t stream)'),
        setWorkspace: library.func('int cublasSetWorkspace_v2(uintptr_t handle, uintptr_t memory, size_t bytes)'),
        sgemm: library.func(
          'int cublasSgemm_v2(uintptr_t handle, int transposeA, int transposeB, int m, int n, int k, float *alpha, ' +
            'uintptr_t a, int lda, uintptr_t b, int ldb, float *beta, uintptr_t c, int ldc)',
        ),
      }
    } catch {
      // the next name
    }
  }
  return null
}

/** Numbers that float32 sums exactly. */
function matrix(rows: number, columns: number, seed: number) {
  return Float32Array.from({ length: rows * columns }, (_, i) => ((i * seed) % 17) - 8)
}

function onTheCpu(a: Float32Array, b: Float32Array) {
  return Float32Array.from({ length: ROWS * COLUMNS }, (_, i) => {
    const [row, column] = [Math.floor(i / COLUMNS), i % COLUMNS]
    let sum = 0
    for (let k = 0; k < INNER; k++) sum += a[row * INNER + k]! * b[k * COLUMNS + column]!
    return sum
  })
}

function check(status: number, call: string): void {
  if (status !== 0) throw new Error(`${call} failed with status ${status} of cuBLAS`)
}

async function main(cublas: NonNullable<ReturnType<typeof openCublas>>): Promise<void> {
  using device = openDevice(0)
  using pool = device.createPool({ maxPoolBytes: 256 * MiB })
  using stream = device.createStream()
  const [left, right] = [matrix(ROWS, INNER, 5), matrix(INNER, COLUMNS, 7)]
  const wanted = onTheCpu(left, right)
  using a = pool.upload(left, stream)
  using b = pool.upload(right, stream)
  using product = pool.allocateArray(Float32Array, ROWS * COLUMNS, stream)
  using workspace = pool.allocate(WORKSPACE_BYTES, stream)

  const created = [0]
  check(cublas.create(created), 'cublasCreate')
  const [handle] = created
  // After this cuBLAS takes no memory of its own. cublasSetStream would take the workspace away again, so it is first.
  check(cublas.setStream(handle, stream.handle), 'cublasSetStream')
  check(cublas.setWorkspace(handle, workspace.ptr, workspace.byteLength), 'cublasSetWorkspace')
  const multiply = (beta: number) => {
    // cuBLAS counts matrices by column, this program by row: it asks for the transposed product.
    const [one, before] = [Float32Array.of(1), Float32Array.of(beta)]
    const [m, n, k] = [COLUMNS, ROWS, INNER]
    const [bPtr, aPtr, cPtr] = [b.ptr, a.ptr, product.ptr]
    const status = cublas.sgemm(handle, NO_TRANSPOSE, NO_TRANSPOSE, m, n, k, one, bPtr, m, aPtr, k, before, cPtr, m)
    check(status, 'cublasSgemm')
  }
  const isRight = async (times: number) =>
    (await product.read()).every((value, i) => value === times * wanted[i]!) ? 'equal' : 'WRONG'

  multiply(0)
  console.log(`${device.name}: the product is ${await isRight(1)} to that of the CPU`)
  const graph = device.capture(stream, () => multiply(1)) // adds another product
  for (let launch = 0; launch < LAUNCHES; launch++) graph.launch(stream)
  console.log(`after ${LAUNCHES} launches of a graph the sum is ${await isRight(1 + LAUNCHES)} to that of the CPU`)
  console.log(`${pool.stats().liveBuffers} buffers of the pool were in use, of which one is cuBLAS's workspace`)
  stream.synchronize()
  graph.close()
  check(cublas.destroy(handle), 'cublasDestroy') // before its workspace is freed
  if ((await isRight(1 + LAUNCHES)) !== 'equal') process.exitCode = 1
}

const cublas = openCublas()
if (cublas === null) console.log(`no cuBLAS: install CUDA's, or set CUDA_MEMPOOL_CUBLAS to its file`)
else {
  try {
    await main(cublas)
  } catch (error) {
    if (!(error instanceof NoDeviceError)) throw error
    console.log(error.message)
  }
}
