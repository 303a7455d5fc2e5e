// The programs that run files of operations: ours, and the rivals, which are compiled where nvcc, a C++ compiler and
// PyTorch are installed.

import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** This folder among the sources, and the folder with compiled programs. */
const SOURCES = fileURLToPath(new URL('../../../bench/rivals', import.meta.url))
const OURS = fileURLToPath(new URL('ours.js', import.meta.url))

/** One allocator. Its arguments are FILE PASSES DEVICE [TIMINGS], as in ours.ts. */
export interface Program {
  readonly name: ProgramName
  readonly about: string
  /** null if it cannot run here */
  readonly command: readonly string[] | null
  /** why it cannot run here */
  readonly reason: string | null
  /** variables beside this process's own; undefined takes one away */
  readonly env: Readonly<Record<string, string | undefined>>
}

const ABOUT = {
  ours: 'cuda-mempool, the caching pool, from Node',
  'cuda-malloc': 'cudaMalloc and cudaFree',
  'cuda-malloc-async': 'cudaMallocAsync, release threshold max',
  cub: "CUB's CachingDeviceAllocator, bins of powers of two, no limit",
  pytorch: "PyTorch's caching allocator, from C++",
  'pytorch-expandable': 'the same with expandable_segments:True',
  nothing: 'the loop and the clock alone, in C++',
} as const
export type ProgramName = keyof typeof ABOUT
export const PROGRAM_NAMES = Object.keys(ABOUT) as ProgramName[]

const TORCH = `import json, os, torch
root = os.path.dirname(torch.__file__)
print(json.dumps([root, torch.__version__, torch.version.cuda, int(torch._C._GLIBCXX_USE_CXX11_ABI)]))`
/** The allocator is in the first two; other versions of PyTorch may need more. */
const TORCH_LIBRARIES = [
  ['-lc10_cuda', '-lc10'],
  ['-lc10_cuda', '-lc10', '-ltorch_cuda', '-ltorch_cpu', '-ltorch'],
]

/** Why a program cannot run. */
class Unavailable extends Error {}

/** Finds and compiles the programs of these names, into `folder`. Without a GPU the rivals cannot run. */
export class Programs {
  /** versions of the tools and libraries that were found */
  readonly versions: Record<string, string> = {}
  /** programs that were compiled, by source */
  private readonly compiled = new Map<string, string>()

  constructor(
    private readonly folder: string,
    private readonly hasGpu: boolean,
  ) {}

  find(name: ProgramName): Program {
    const program = { name, about: ABOUT[name], env: {} }
    try {
      return { ...program, ...this.commandOf(name), reason: null }
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      return { ...program, command: null, reason: error.message }
    }
  }

  private commandOf(name: ProgramName): Pick<Program, 'command'> & Partial<Program> {
    if (name === 'ours') return { command: [process.execPath, OURS] }
    if (name === 'nothing') return { command: [this.compile('nothing.cpp', 'g++', [['-O3', '-std=c++17']])] }
    if (!this.hasGpu) throw new Unavailable('there is no GPU')
    const settings = name === 'pytorch-expandable' ? 'expandable_segments:True' : undefined
    // Older versions know the first name, newer ones both.
    const env = { PYTORCH_CUDA_ALLOC_CONF: settings, PYTORCH_ALLOC_CONF: settings }
    if (name.startsWith('pytorch')) return { command: [this.compilePyTorch()], env }
    return { command: [this.compileCuda(name === 'cub' ? 'cub.cu' : `${name}.cpp`, [['-std=c++17']])] }
  }

  private compilePyTorch(): string {
    const { status, stdout, stderr } = spawnSync('python3', ['-c', TORCH], { encoding: 'utf8' })
    if (status !== 0) throw new Unavailable(`python3 finds no PyTorch: ${lastLine(stderr ?? '') || 'no python3'}`)
    const [root, version, cuda, abi] = JSON.parse(lastLine(stdout)) as [string, string, string | null, number]
    if (cuda === null) throw new Unavailable(`PyTorch ${version} is without CUDA`)
    this.versions['PyTorch'] = version
    const library = join(root, 'lib')
    const common = [`-D_GLIBCXX_USE_CXX11_ABI=${abi}`, `-I${join(root, 'include')}`, `-L${library}`]
    const link = ['-Xlinker', '--allow-shlib-undefined', '-Xlinker', '-rpath', '-Xlinker', library]
    const attempts = ['-std=c++20', '-std=c++17'].flatMap(standard =>
      TORCH_LIBRARIES.map(libraries => [standard, ...common, ...link, ...libraries]),
    )
    return this.compileCuda('pytorch.cpp', attempts)
  }

  private compileCuda(source: string, attempts: readonly string[][]): string {
    const { status, stdout, stderr } = spawnSync('nvcc', ['--version'], { encoding: 'utf8' })
    if (status !== 0) throw new Unavailable(`nvcc does not run: ${lastLine(stderr ?? '') || 'it was not found'}`)
    this.versions['nvcc'] = /release .*/.exec(stdout)?.[0] ?? lastLine(stdout)
    const { stderr: plan } = spawnSync('nvcc', ['--dryrun', join(SOURCES, source)], { encoding: 'utf8' })
    const toolkit = /^#\$ TOP=(.*)$/m.exec(plan)?.[1]
    const path = toolkit === undefined ? [] : ['-Xlinker', '-rpath', '-Xlinker', join(toolkit, 'lib64')]
    // counted-calls.cpp replaces functions of the runtime, so that must be a shared library.
    const shared = [join(SOURCES, 'counted-calls.cpp'), '-O3', '-cudart', 'shared', '-Xcompiler', '-rdynamic', ...path]
    const complete = attempts.map(flags => [...shared, ...flags, '-ldl'])
    return this.compile(source, 'nvcc', complete)
  }

  /** The program of a source file, compiled with the first flags of `attempts` that succeed. */
  private compile(source: string, compiler: string, attempts: readonly string[][]): string {
    const before = this.compiled.get(source)
    if (before !== undefined) return before
    const target = join(this.folder, source.replace(/\..*/, ''))
    let message = ''
    for (const flags of attempts) {
      const { error, status, stdout, stderr } = spawnSync(compiler, [join(SOURCES, source), '-o', target, ...flags], {
        encoding: 'utf8',
      })
      if (error !== undefined) throw new Unavailable(`${compiler} does not run: ${error.message}`)
      if (status === 0) {
        this.compiled.set(source, target)
        return target
      }
      message ||= errorLine(`${stdout}${stderr}`)
    }
    throw new Unavailable(`${compiler} refuses ${source}: ${message}`)
  }
}

/** Runs a program; returns what it printed. Throws Error with one line that says why it failed. */
export function runProgram({ command, env }: Program, args: readonly string[], timeoutSeconds: number): string {
  const [file, ...first] = command!
  const { error, signal, status, stdout, stderr } = spawnSync(file, [...first, ...args], {
    encoding: 'utf8',
    env: { ...process.env, ...env },
    timeout: timeoutSeconds * 1000,
    killSignal: 'SIGKILL',
  })
  if ((error as NodeJS.ErrnoException | undefined)?.code === 'ETIMEDOUT') {
    throw new Error(`stopped after ${timeoutSeconds} s; --timeout allows more`)
  }
  if (error !== undefined) throw error
  if (status !== 0) throw new Error(errorLine(stderr) || `ended by ${signal ?? `exit code ${status}`}`)
  return stdout
}

/** The line of an output that says what is wrong. */
export function errorLine(output: string): string {
  const lines = output.trim().split('\n')
  return (lines.find(line => /\berror\b/i.test(line)) ?? lines.at(-1) ?? '').trim().slice(0, 300)
}

function lastLine(output: string): string {
  return output.trim().split('\n').at(-1) ?? ''
}
