// Sessions whose runs leave the thread, with the library of ONNX Runtime itself: `run` calls the C function in a thread
// of libuv, as open changes of onnxruntime-node do (onnxruntime#28646 and #32346). For models of `model.fixture.ts`.

import { type OnnxRuntimeLibrary, type Pointer, prototype } from './library.js'

/** Places in the table of the C interface, with prototypes. */
const FUNCTIONS = {
  sessionFromArray: [
    8,
    'uint64_t CreateSessionFromArray(uint64_t env, const void *model, size_t bytes, uint64_t options, _Out_ uint64_t *out)',
  ],
  run: [
    9,
    'uint64_t Run(uint64_t session, uint64_t options, const char **inputNames, const uint64_t *inputs, size_t inputCount, ' +
      'const char **outputNames, size_t outputCount, _Inout_ uint64_t *outputs)',
  ],
  sessionOptions: [10, 'uint64_t CreateSessionOptions(_Out_ uint64_t *out)'],
  threads: [24, 'uint64_t SetIntraOpNumThreads(uint64_t options, int threads)'],
  tensor: [
    49,
    'uint64_t CreateTensorWithDataAsOrtValue(uint64_t info, void *data, size_t bytes, const int64_t *shape, ' +
      'size_t dimensions, int type, _Out_ uint64_t *out)',
  ],
  tensorData: [51, 'uint64_t GetTensorMutableData(uint64_t value, _Out_ uint64_t *out)'],
  releaseSession: [95, 'void ReleaseSession(uint64_t session)'],
  releaseValue: [96, 'void ReleaseValue(uint64_t value)'],
  releaseOptions: [100, 'void ReleaseSessionOptions(uint64_t options)'],
  cuda: [204, 'uint64_t SessionOptionsAppendExecutionProvider_CUDA_V2(uint64_t options, uint64_t cudaOptions)'],
  configEntry: [130, 'uint64_t AddSessionConfigEntry(uint64_t options, const char *key, const char *value)'],
} as const

const FLOAT = 1
const POINTER_BYTES = 8
type Call = ((...args: unknown[]) => Pointer) & { async(...args: unknown[]): void }

/** Rows of x, one behind another. */
export interface Rows {
  readonly x: Float32Array
  readonly rows: number
  /** for the result; without it ONNX Runtime allocates memory */
  readonly y?: Float32Array
}

export class OffThreadSession {
  private readonly info: Pointer
  private readonly bound = new Map<keyof typeof FUNCTIONS, Call>()
  private readonly runCall: Call
  private readonly session: Pointer

  /** With memory of the allocators that are registered now, or of arenas of its own; on the first GPU, or the CPU. */
  constructor(
    private readonly library: OnnxRuntimeLibrary,
    model: Uint8Array,
    private readonly width: number,
    memory: 'registered' | 'arena',
    provider: 'cpu' | 'cuda' = 'cpu',
  ) {
    this.info = library.create('CreateMemoryInfo', 'Cpu', 0, 0, 0)
    this.runCall = this.bind('run')
    const environment = library.create('CreateEnv', 2, 'off the thread')
    const options = this.made('sessionOptions')
    this.check(this.bind('threads')(options, 1))
    const isRegistered = memory === 'registered' ? '1' : '0'
    this.check(this.bind('configEntry')(options, 'session.use_env_allocators', isRegistered))
    if (provider === 'cuda') this.useCuda(options)
    this.session = this.made('sessionFromArray', environment, model, model.length, options)
    this.bind('releaseOptions')(options)
  }

  /** Runs in a thread of libuv; this thread goes on meanwhile. */
  async run(rows: Rows): Promise<Float32Array> {
    const { tensors, args } = this.argumentsOf(rows)
    const status = await new Promise<Pointer>((resolve, reject) => {
      this.runCall.async(...args, (error: Error | null, result: Pointer) => (error ? reject(error) : resolve(result)))
    })
    return this.taken(rows, tensors, status)
  }

  /** Runs in this thread. */
  runSync(rows: Rows): Float32Array {
    const { tensors, args } = this.argumentsOf(rows)
    return this.taken(rows, tensors, this.runCall(...args))
  }

  async release(): Promise<void> {
    this.bind('releaseSession')(this.session)
  }

  private useCuda(options: Pointer): void {
    const cudaOptions = this.library.create('CreateCUDAProviderOptions')
    this.check(this.bind('cuda')(options, cudaOptions))
    this.library.call('ReleaseCUDAProviderOptions', cudaOptions)
  }

  private argumentsOf({ x, y, rows }: Rows) {
    const input = this.tensor(x, rows)
    const outputs: Pointer[] = [y === undefined ? 0 : this.tensor(y, rows)]
    return { tensors: { input, outputs }, args: [this.session, 0, ['x'], [input], 1, ['y'], 1, outputs] }
  }

  private tensor(data: Float32Array, rows: number): Pointer {
    return this.made('tensor', this.info, data, data.byteLength, [rows, this.width], 2, FLOAT)
  }

  /** The result; memory of ONNX Runtime is copied, and goes back. */
  private taken(
    { y, rows }: Rows,
    { input, outputs }: { readonly input: Pointer; readonly outputs: readonly Pointer[] },
    status: Pointer,
  ): Float32Array {
    this.bind('releaseValue')(input)
    try {
      this.check(status)
      return y ?? this.copyOf(outputs[0], rows)
    } finally {
      if (outputs[0] !== 0) this.bind('releaseValue')(outputs[0])
    }
  }

  private copyOf(output: Pointer, rows: number): Float32Array {
    const data = this.made('tensorData', output)
    const bytes = this.library.koffi.view(BigInt(data), rows * this.width * Float32Array.BYTES_PER_ELEMENT)
    return new Float32Array(bytes).slice()
  }

  private bind(name: keyof typeof FUNCTIONS): Call {
    const known = this.bound.get(name)
    if (known !== undefined) return known
    const { koffi } = this.library
    const { table } = this.library as unknown as { readonly table: unknown }
    const [index, text] = FUNCTIONS[name]
    const call = koffi.decode(koffi.decode(table, index * POINTER_BYTES, 'void *'), prototype(koffi, text)) as Call
    this.bound.set(name, call)
    return call
  }

  private made(name: keyof typeof FUNCTIONS, ...args: unknown[]): Pointer {
    const out: Pointer[] = [0]
    this.check(this.bind(name)(...args, out))
    return out[0]
  }

  private check(status: Pointer): void {
    if (Number(status) === 0) return
    const message = this.library.call('GetErrorMessage', status) as string
    this.library.call('ReleaseStatus', status)
    throw new Error(message)
  }
}
