// The kinds of frames of Python and JavaScript, by their files. Paths have slashes here.

import type { FrameKind } from './frame-kind.js'
import { isDispatch, isPytorchSource, pytorchRoot } from './pytorch-files.js'

/** The part of a path below the last folder of installed packages; an egg is a folder of its own. */
const INSTALLED = /^.*\/(?:site|dist)-packages\/(?:[^/]+\.egg\/)?(.*)$/s
const NODE_PACKAGE = /(?:^|\/)node_modules\//
/** PyTorch and the packages that it installs beside itself. */
const PYTORCH_PACKAGE = /^(?:torch|functorch|torchgen|triton)\//
/** Packages that start programs, run cells, or debug and test them. */
const LAUNCHER_PACKAGE =
  /^(?:IPython|ipykernel|traitlets|tornado|jupyter\w*|notebook|nbclient|zmq|_pytest|pytest|pluggy|ipdb|pudb|coverage|deepspeed\/launcher|accelerate\/commands)\//
const LAUNCHER_FILE =
  /(?:^|\/)(?:ipykernel_launcher|nest_asyncio)\.py$|(?:^|\/bin\/)(?:torchrun|accelerate|deepspeed|ipython3?|jupyter[\w-]*|pytest)$/
/** Debuggers of editors lie in the folders of these. */
const DEBUGGER = /(?:^|\/)(?:debugpy|pydevd|helpers\/pydev|_pydev\w*)\//
/** Names that decorators and hooks give to the function around a function. Such a line passes a call on. */
const WRAPPER =
  /^_*(?:wrapper|wrapped|inner|decorator|decorated|new_forward)(?:_(?:fn|func|function|call))?$|^_*wrapped_f$/
/** The same of callable objects. */
const WRAPPER_FILE = /^(?:wrapt\/|decorator\.py$|accelerate\/utils\/operations\.py$)/
const WRAPPER_METHOD = /^(?:__call__|forward|fun)$/
const OF_NODE = /^(?:node:|at )/

/** Facts that the other frames of a recording tell. */
interface Evidence {
  /** whether PyTorch is an installed package, so that it is nowhere else, and no path is cut */
  readonly isInstalled: boolean
  /** folders of PyTorch's sources */
  readonly roots: ReadonlySet<string>
  /** folders of Python's library on Windows, which have the installed packages in them */
  readonly libraries: ReadonlySet<string>
  /** whether the program is the argument of `python -c` */
  readonly isCommand: boolean
}

/** The facts that the frames of a recording tell, by their paths. */
export function evidenceOf(paths: readonly string[], names: readonly string[]): Evidence {
  return {
    isInstalled: paths.some(path => INSTALLED.exec(path)?.[1].startsWith('torch/')),
    roots: new Set(paths.map(pytorchRoot).filter(root => root !== null)),
    libraries: new Set(paths.map(path => PACKAGES_ON_WINDOWS.exec(path)?.[1].toLowerCase() ?? '')),
    isCommand: paths.some((path, i) => path === COMMAND && names[i] === '<module>'),
  }
}

/** The name of the kind. */
export function pythonKind(path: string, name: string, evidence: Evidence): keyof typeof FrameKind {
  const { isInstalled, roots, isCommand } = evidence
  if (OF_NODE.test(path)) return 'launcher'
  if (PSEUDO_FILE.test(path)) return pseudoKind(path, isCommand)
  if (COMPILED.some(pattern => pattern.test(path))) return 'generated'
  if (LAUNCHER_FILE.test(path) || DEBUGGER.test(path)) return 'launcher'
  const inPackages = INSTALLED.exec(path)?.[1]
  const isOfPytorch =
    inPackages === undefined ? isPytorchSource(path, isInstalled ? null : roots) : PYTORCH_PACKAGE.test(inPackages)
  if (isOfPytorch) return isDispatch(path, name) ? 'launcher' : 'pytorch'
  // A path that a profiler has cut begins at a package, or in Python's library.
  const below = inPackages ?? (isInstalled ? '' : path)
  if (LAUNCHER_PACKAGE.test(below)) return 'launcher'
  if (inPackages !== undefined && isWrapper(inPackages, name)) return 'launcher'
  if (inPackages !== undefined || NODE_PACKAGE.test(path)) return 'package'
  return isOfLibrary(path, evidence.libraries) || CALLING.test(below) ? 'launcher' : 'program'
}

/**
 * Code that torch.compile has written: in a folder of its own, or in one that a program chose, where files lie in
 * folders of the first letters of their hash. A hash has the letters and digits of base 32.
 */
const COMPILED = [
  /\/(?:torchinductor_[^/]+|torch_compile_debug|\.triton)\//,
  /(?:^|\/)(\w\w)\/c\1(?=[a-z]*[2-7])[a-z2-7]{9,}\.py$/,
]
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

const LIBRARY_FOLDER = /(?:^|\/)lib(?:64)?\/(?:python|pypy)3(?:\.\d+\w*)?\/|\/python3\d*\.zip\//
/** On Windows the library has no folder of its version. It is the folder around the installed packages. */
const PACKAGES_ON_WINDOWS = /^((?:[a-z]:|\/\/).*\/lib\/)site-packages\//is
const LIBRARY_ON_WINDOWS = /^((?:[a-z]:|\/\/).*\/)lib\/([^/]+)/is
/** A virtual environment has no library, but its installation is called after Python or a distribution of it. */
const INSTALLATION =
  /\/(?:c?python(?:[-_.]?\d[^/]*|softwarefoundation[^/]*)?|(?:ana|mini)?conda\d*|(?:mini|mamba)forge\d*|(?:envs|versions)\/[^/]+)\/$/i
const LIBRARY = new Set(
  `asyncio collections concurrent ctypes importlib json logging multiprocessing unittest abc ast bdb code codeop contextlib
   copy copyreg cProfile dataclasses enum functools heapq inspect operator pdb pickle profile queue random re runpy
   selectors socketserver statistics subprocess tempfile threading timeit trace traceback types typing warnings
   weakref`.split(/\s+/),
)
/** The parts of it that call programs, for paths that a profiler has cut; no program is called so. */
const CALLING =
  /^(?:asyncio\/|concurrent\/futures\/|importlib\/|multiprocessing\/|(?:threading|runpy|contextlib|functools|copy)\.py$)/

/** Whether a line of an installed package passes a call on to the function that it is around. */
function isWrapper(inPackages: string, name: string): boolean {
  return WRAPPER.test(name) || (WRAPPER_FILE.test(inPackages) && WRAPPER_METHOD.test(name))
}

/** Whether a file is of Python's standard library; `libraries` are folders of it that other paths have told. */
function isOfLibrary(path: string, libraries: ReadonlySet<string>): boolean {
  if (LIBRARY_FOLDER.test(path)) return true
  const [, folder, first] = LIBRARY_ON_WINDOWS.exec(path) ?? []
  if (folder === undefined || !(libraries.has(`${folder}lib/`.toLowerCase()) || INSTALLATION.test(folder))) return false
  return LIBRARY.has(first.replace(/\.py$/, ''))
}
