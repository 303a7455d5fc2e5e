// The kinds of frames of Python and JavaScript, by their files. Paths have slashes here.

import type { FrameKind } from './frame-kind.js'
import { isDispatch, isPytorchSource } from './pytorch-files.js'

/** The part of a path below the last folder of installed packages; an egg is a folder of its own. */
const INSTALLED = /^.*\/(?:site|dist)-packages\/(?:[^/]+\.egg\/)?(.*)$/s
const NODE_PACKAGE = /(?:^|\/)node_modules\//
/** PyTorch and the packages that it installs beside itself. */
const PYTORCH_PACKAGE = /^(?:torch|functorch|torchgen|triton)\//
/** Packages that start programs, run cells, or debug and test them. */
const LAUNCHER_PACKAGE =
  /^(?:IPython|ipykernel|traitlets|tornado|jupyter\w*|notebook|nbclient|zmq|_pytest|pytest|pluggy|ipdb|pudb|coverage|deepspeed\/launcher|accelerate\/commands)\//
const LAUNCHER_FILE =
  /(?:^|\/)(?:ipykernel_launcher\.py|nest_asyncio\.py|torchrun|accelerate|deepspeed|ipython3?|jupyter[\w-]*|pytest)$/
/** Debuggers of editors lie in the folders of these. */
const DEBUGGER = /(?:^|\/)(?:debugpy|pydevd?|_pydev\w*)\//
const OF_NODE = /^(?:node:|at )/

/** Facts that the other frames of a recording tell. */
interface Evidence {
  /** folders of PyTorch's sources */
  readonly roots: ReadonlySet<string>
  /** whether the program is the argument of `python -c` */
  readonly isCommand: boolean
}

/** Whether a frame is the body of a program that is the argument of `python -c`. */
export function isCommandBody(path: string, name: string): boolean {
  return path === COMMAND && name === '<module>'
}

/** The name of the kind. */
export function pythonKind(path: string, name: string, { roots, isCommand }: Evidence): keyof typeof FrameKind {
  if (OF_NODE.test(path)) return 'launcher'
  if (PSEUDO_FILE.test(path)) return pseudoKind(path, isCommand)
  if (COMPILED.some(pattern => pattern.test(path))) return 'generated'
  if (LAUNCHER_FILE.test(path) || DEBUGGER.test(path)) return 'launcher'
  const inPackages = INSTALLED.exec(path)?.[1]
  const isOfPytorch = inPackages === undefined ? isPytorchSource(path, roots) : PYTORCH_PACKAGE.test(inPackages)
  if (isOfPytorch) return isDispatch(path, name) ? 'launcher' : 'pytorch'
  if (LAUNCHER_PACKAGE.test(inPackages ?? path)) return 'launcher'
  if (inPackages !== undefined || NODE_PACKAGE.test(path)) return 'package'
  return isOfLibrary(path) ? 'launcher' : 'program'
}

/**
 * Code that torch.compile has written: in a folder of its own, or in one that a program chose, where files lie in
 * folders of the first letters of their hash.
 */
const COMPILED = [/\/(?:torchinductor_[^/]+|torch_compile_\w+|\.triton)\//, /(?:^|\/)(\w\w)\/c\1[a-z0-9]{9,}\.py$/]
/** Code without a file, such as `<string>`, or a graph of torch.fx with the place that made it. */
const PSEUDO_FILE = /^<[^\n]*>(?:\.\d+)?$|^<eval_with_key>/
/** Code from a text: the program of `python -c`, or functions that a library wrote, as for data classes. */
const COMMAND = '<string>'
const TYPED_IN =
  /^<(?:stdin|console|input|ipython-input|python-input|command-|cell|timed (?:exec|eval)|magic-timeit|doctest)\b/

function pseudoKind(path: string, isCommand: boolean): 'launcher' | 'generated' | 'program' {
  if (path.startsWith('<frozen ')) return 'launcher'
  return TYPED_IN.test(path) || (path === COMMAND && isCommand) ? 'program' : 'generated'
}

const LIBRARY_FOLDER = /(?:^|\/)lib(?:64)?\/(?:python|pypy)3[^/]*\/|\/python3\d*\.zip\//
/** On Windows the library has no folder of its version, but the installation is called after Python or conda. */
const INSTALLATION = /python|conda|\/envs\//i
const LIBRARY = new Set(
  `asyncio collections concurrent ctypes importlib json logging multiprocessing unittest abc ast bdb code codeop contextlib
   copy copyreg cProfile dataclasses enum functools heapq inspect operator pdb pickle profile queue random re runpy
   selectors socketserver statistics subprocess tempfile threading timeit trace traceback types typing warnings
   weakref`.split(/\s+/),
)
/** The parts of it that call programs, for paths that a profiler has cut; no program is called so. */
const CALLING =
  /^(?:asyncio\/|concurrent\/futures\/|importlib\/|multiprocessing\/|(?:threading|runpy|contextlib|functools|copy)\.py$)/

/** Whether a file is of Python's standard library. */
function isOfLibrary(path: string): boolean {
  if (LIBRARY_FOLDER.test(path) || CALLING.test(path)) return true
  const at = path.toLowerCase().lastIndexOf('/lib/')
  if (at < 0 || !INSTALLATION.test(path.slice(0, at))) return false
  const [first] = path.slice(at + '/lib/'.length).split('/')
  return LIBRARY.has(first.replace(/\.py$/, ''))
}
