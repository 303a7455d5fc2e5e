// The kinds of frames of C and C++, by their names.

import type { FrameKind } from './frame-kind.js'
import { backwardOperator, plainName } from './native-names.js'

const SOURCE = /\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|inl|S|rs|o|so(?:\.[\d.]+)?|dll|pyd|exe|dylib)$/
const INTERPRETER = /(?:^|\/)python[\d.]*$/

/** Whether a frame is of C or C++. torch.profiler gives operators no file. */
export function isNative(path: string, name: string): boolean {
  return path === '' || path === '??' || SOURCE.test(path) || INTERPRETER.test(path) || name.includes('::')
}

/** CPython and libc, which are in C. */
const RUNTIME_FOLDER = /(?:^|\/)(?:Python|Objects|Modules|Include|Parser|csu|nptl|sysdeps)\//
const IN_C = /\.[chS]$/
/** Parts of them by name, and bindings that PyTorch generates. */
const MACHINERY_FILES = [
  /(?:^|\/)(?:ceval|pythonrun)\.c$|pycore_\w+\.h$|cpython\/abstract\.h$/,
  /(?:^|\/)python_(?:\w+_functions|variable_methods)\w*\.cpp$/,
]
/** The files that PyTorch generates for dispatch; programs in other folders may have such names. */
const DISPATCH_FILE =
  /(?:^|\/)(?:Register|Redispatch|VariableType|ADInplaceOrView|TraceType|Functionalize)\w*\.\w+$|core\/boxing\//
const PYTORCH_FOLDER = /(?:^|\/)(?:aten|ATen|torch)\//
/** Names of machinery, whatever their files. */
const MACHINERY_NAMES = [
  // no name, its address, and functions of Python that are written in C, as torch.profiler has them
  /^[?\s]*$|^0x[\da-f]+$|^<|^\(/,
  // the capture of the stack
  /^torch::(?:unwind|CapturedTraceback|symbolize)\b|^torch::\w+::gather(?:_with_cpp)?$/,
  // dispatch, and bindings between languages
  /^c10::|^at::wrapper_|^torch::(?:autograd|ADInplaceOrView|TraceType|dynamo|utils|PythonArgParser|detail|handle_torch_function\w*)\b/,
  /^(?:pybind11|nanobind|boost|std|__gnu_cxx)::|^(?:THP|ffi_|_?ctypes|decltype$)/,
  // the start of threads, and functions that compilers make
  /^_start$|^__(?:libc|GI|restore)_|^_*clone3?$|^start_thread$|^pthread_|^execute_native_thread_routine$/,
  /^(?:BaseThreadInitThunk|RtlUserThreadStart|operator|new|_FUN|_M_\w+)$/,
]
/** Names of CPython's functions. A program in C++ may have such names, too. */
const CPYTHON_NAMES = [
  /^_?main$|^_*Py[A-Z_]|^py(?:main|run|thread)_|^(?:vectorcall|context_run|thread_run|t_bootstrap|\w*lru_cache)/,
  /^(?:slot|wrap|wrapper|method|cfunction|builtin|type|object|func|function|gen|property|partial)_\w*$/,
  /^(?:classmethod|map|tuple|list|dict|member|getset|descr|run|bound_method)_\w*$/,
]
/** Autograd's engine, and its calls of operators. */
const ENGINE =
  /^torch::autograd::(?:python::)?(?:Python)?(?:Engine|Node|PyNode|GraphTask|NodeTask|ReadyQueue|GraphRoot)\b/
const PROFILED_ENGINE = 'autograd::engine::'
/** Functions that make tensors for an operator further out, and the table of operators. */
const PLUMBING = [
  /^at::(?:_ops|detail|meta|impl|functorch|redispatch|composite\w+|(?:cuda|hip|xpu)::detail)::/,
  /^at::(?:Tensor|TensorBase|TensorIterator\w*|Structured\w+|structured_\w+)::|::set_output\w*$/,
  /^(?:at|aten|torch)::(?:native::)?_?(?:new_)?(?:empty|alloc_with|resize|set_|raw_|create_out|gpu_reduce_kernel)/,
]
/** Namespaces of PyTorch and of libraries that are built into it. */
const OF_PYTORCH = /^(?:at|c10|c10d|torch|caffe2|aten|cutlass|cub|thrust)::/

/** The name of the kind. */
export function nativeKind(path: string, line: number, name: string): keyof typeof FrameKind {
  if (backwardOperator(name) !== null) return 'backward'
  const plain = plainName(name)
  if (ENGINE.test(plain) || name.startsWith(PROFILED_ENGINE)) return 'engine'
  if (plain.includes('Allocator::') || MACHINERY_NAMES.some(pattern => pattern.test(plain))) return 'unnamed'
  const isCpp = line > 0 && !IN_C.test(path)
  if (isMachineryFile(path) || (!isCpp && CPYTHON_NAMES.some(pattern => pattern.test(plain)))) return 'unnamed'
  if (PLUMBING.some(pattern => pattern.test(plain))) return 'plumbing'
  return line > 0 && !OF_PYTORCH.test(plain) ? 'nativeLine' : 'native'
}

function isMachineryFile(path: string): boolean {
  if (IN_C.test(path) && RUNTIME_FOLDER.test(path)) return true
  if (DISPATCH_FILE.test(path) && (!path.includes('/') || PYTORCH_FOLDER.test(path))) return true
  return MACHINERY_FILES.some(pattern => pattern.test(path))
}
