// Finds and opens the library of ONNX Runtime that onnxruntime-node uses, and calls its C interface. The library has
// one environment a process, so what is registered here holds for the program's sessions. The interface is a table of
// functions whose order never changes.

import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { NoLibraryError, PoolError } from '../core/base/errors.js'
import { type Koffi, keepOpen, loadKoffi } from '../core/libraries/koffi.js'

/** A pointer of C, as koffi takes and gives it. */
export type Pointer = number | bigint

/** Version 1.23 of the interface is the first one with AllocOnStream. */
const INTERFACE = 23
const POINTER_BYTES = 8
const FILE = 'libonnxruntime.so.1'
const REMEDY = "give the path of the package, such as require.resolve('onnxruntime-node')"

/** Places in the table, with prototypes. */
const FUNCTIONS = {
  GetErrorMessage: [2, 'const char *GetErrorMessage(uint64_t status)'],
  CreateEnv: [3, 'uint64_t CreateEnv(int level, const char *name, _Out_ uint64_t *env)'],
  CreateMemoryInfo: [
    68,
    'uint64_t CreateMemoryInfo(const char *name, int allocator, int id, int kind, _Out_ uint64_t *info)',
  ],
  ReleaseStatus: [93, 'void ReleaseStatus(uint64_t status)'],
  CreateArenaCfg: [
    156,
    'uint64_t CreateArenaCfg(size_t limit, int strategy, int chunk, int dead, _Out_ uint64_t *config)',
  ],
  ReleaseArenaCfg: [157, 'void ReleaseArenaCfg(uint64_t config)'],
  RegisterAllocator: [176, 'uint64_t RegisterAllocator(uint64_t env, uint64_t allocator)'],
  UnregisterAllocator: [177, 'uint64_t UnregisterAllocator(uint64_t env, uint64_t info)'],
  CreateCUDAProviderOptions: [205, 'uint64_t CreateCUDAProviderOptions(_Out_ uint64_t *options)'],
  ReleaseCUDAProviderOptions: [208, 'void ReleaseCUDAProviderOptions(uint64_t options)'],
  CreateAndRegisterAllocatorV2: [
    259,
    'uint64_t CreateAndRegisterAllocatorV2(uint64_t env, const char *provider, uint64_t info, uint64_t config, ' +
      'const char **keys, const char **values, size_t count)',
  ],
  SyncStream_GetHandle: [384, 'uint64_t SyncStream_GetHandle(uint64_t stream)'],
} as const

type FunctionName = keyof typeof FUNCTIONS
type Argument = number | bigint | string | null | Uint8Array | Pointer[] | readonly string[]
type Bound = (...args: Argument[]) => unknown

/** An opened library of ONNX Runtime. */
export class OnnxRuntimeLibrary {
  private readonly bound = new Map<FunctionName, Bound>()

  private constructor(
    readonly koffi: Koffi,
    /** the file of the library */
    readonly path: string,
    /** the version that the library tells, such as `1.29.0` */
    readonly version: string,
    private readonly table: unknown,
  ) {}

  /** Opens the library that `place` names: its file, the package's folder, or a file in the package. */
  static open(place: string): OnnxRuntimeLibrary {
    const koffi = loadKoffi()
    const path = libraryFile(place)
    const base = apiBase(koffi, path)
    const [getApi, getVersion] = [0, POINTER_BYTES].map(at => koffi.decode(base, at, 'void *'))
    const version = koffi.call(getVersion, prototype(koffi, 'const char *GetVersionString()')) as string
    // An older version would write a complaint to standard error when asked for this interface.
    const [major, minor] = version.split('.').map(Number)
    if (major === 1 && minor < INTERFACE) {
      throw new NoLibraryError(
        `ONNX Runtime ${version} at ${path} is too old; install onnxruntime-node 1.${INTERFACE} or later`,
      )
    }
    const table = koffi.call(getApi, prototype(koffi, 'void *GetApi(uint32_t version)'), INTERFACE)
    if (table === null) throw new NoLibraryError(`ONNX Runtime ${version} at ${path} lacks interface ${INTERFACE}`)
    return new OnnxRuntimeLibrary(koffi, path, version, table)
  }

  /** A function of the table. */
  bind(name: FunctionName): Bound {
    let bound = this.bound.get(name)
    if (bound === undefined) {
      const [index, text] = FUNCTIONS[name]
      const pointer = this.koffi.decode(this.table, index * POINTER_BYTES, 'void *')
      bound = this.koffi.decode(pointer, prototype(this.koffi, text)) as Bound
      this.bound.set(name, bound)
    }
    return bound
  }

  /** Calls a function without a status as its result. */
  call(name: FunctionName, ...args: Argument[]): unknown {
    return this.bind(name)(...args)
  }

  /** Calls a function that returns a status; the reason of a failure, or null. */
  failure(name: FunctionName, ...args: Argument[]): string | null {
    const status = this.call(name, ...args) as Pointer
    if (Number(status) === 0) return null
    const message = this.call('GetErrorMessage', status) as string
    this.call('ReleaseStatus', status)
    return message.trim()
  }

  /** Calls a function that returns a status. Throws PoolError with the reason of a failure. */
  check(name: FunctionName, ...args: Argument[]): void {
    const failure = this.failure(name, ...args)
    if (failure !== null) throw new PoolError(`${name} of ONNX Runtime ${this.version} failed: ${failure}`)
  }

  /** Calls a function that writes a pointer to its last argument. */
  create(name: FunctionName, ...args: Argument[]): Pointer {
    const out: Pointer[] = [0]
    this.check(name, ...args, out)
    return out[0]
  }
}

/** Prototypes by text: koffi refuses to define one name twice. */
const prototypes = new Map<string, ReturnType<Koffi['proto']>>()

export function prototype(koffi: Koffi, text: string): ReturnType<Koffi['proto']> {
  const known = prototypes.get(text) ?? koffi.proto(text)
  prototypes.set(text, known)
  return known
}

function apiBase(koffi: Koffi, path: string): unknown {
  try {
    const library = koffi.load(path)
    keepOpen(koffi, path)
    return library.func('void *OrtGetApiBase()')()
  } catch (error) {
    throw new NoLibraryError(`${path} is no usable ONNX Runtime (${(error as Error).message}); ${REMEDY}`)
  }
}

/** The library's file, at `place` or in the package that `place` lies in. */
function libraryFile(place: string): string {
  const missing = (why: string) => new NoLibraryError(`library: no ONNX Runtime for ${place} (${why}); ${REMEDY}`)
  if (!existsSync(place)) throw missing('no such file or folder')
  const start = realpathSync(place)
  if (/\.so(\.|$)/.test(start)) return start
  let folder = statSync(start).isDirectory() ? start : dirname(start)
  while (!existsSync(join(folder, 'package.json'))) {
    const above = dirname(folder)
    if (above === folder) throw missing('it lies in no package')
    folder = above
  }
  const binaries = join(folder, 'bin')
  const versions = existsSync(binaries) ? readdirSync(binaries).filter(name => name.startsWith('napi-')) : []
  const files = versions.map(name => join(binaries, name, process.platform, process.arch, FILE))
  const file = files.find(each => existsSync(each))
  if (file === undefined) throw missing(`${folder} has no ${FILE} for ${process.platform} ${process.arch}`)
  return realpathSync(file)
}
