// PyTorch's own files, where no folder of installed packages tells them: a build in its sources, or paths that a
// profiler has cut. The name `torch` of a folder is not enough, as programs and environments are called so, too.

/** Below the folder `torch`, without `.py`: names that no other program has there. */
const CERTAIN = new Set(
  `_awaits _C _compile _custom_op _custom_ops _decomp _dispatch _dynamo _export _functorch _guards _higher_order_ops
   _inductor _jit_internal _lazy _library _linalg_utils _lobpcg _logging _lowrank _meta_registrations _numpy _ops _prims
   _prims_common _refs _subclasses _tensor _tensor_str _utils_internal _vmap_internals _VF _weights_only_unpickler
   nn/modules nn/parallel nn/functional nn/common_types nn/_reduction nn/intrinsic nn/quantizable
   optim/_functional optim/_multi_tensor optim/_adafactor optim/_muon optim/adadelta optim/adagrad optim/adam
   optim/adamax optim/adamw optim/asgd optim/lbfgs optim/lr_scheduler optim/nadam optim/optimizer optim/radam
   optim/rmsprop optim/rprop optim/sgd optim/sparse_adam optim/swa_utils
   autograd/_functions autograd/anomaly_mode autograd/forward_ad autograd/function autograd/functional
   autograd/grad_mode autograd/gradcheck autograd/graph autograd/profiler_util autograd/variable
   utils/_contextlib utils/_device utils/_foreach_utils utils/_python_dispatch utils/_pytree utils/_triton
   cuda/_memory_viz cuda/graphs cuda/nccl cuda/nvtx cuda/streams amp/autocast_mode amp/grad_scaler
   distributed/_composable distributed/_functional_collectives distributed/_symmetric_memory distributed/c10d_logger
   distributed/device_mesh distributed/distributed_c10d distributed/elastic distributed/fsdp
   fx/_symbolic_trace fx/graph_module jit/_recursive jit/_script jit/_trace ao/quantization`.split(/\s+/),
)
/** Names that others may have there, too. They count in paths that begin at `torch`. */
const LIKELY = new Set(
  `__init__ _utils functional hub overrides random serialization storage nn/init nn/parameter nn/grad nn/utils
   nn/attention nn/quantized nn/qat autograd/__init__ autograd/profiler utils/checkpoint utils/cpp_extension utils/data
   utils/hooks cuda/__init__ cuda/amp cuda/memory cuda/random cuda/comm distributed/algorithms distributed/autograd
   distributed/checkpoint distributed/launch distributed/launcher distributed/nn distributed/optim distributed/pipelining
   distributed/rpc distributed/run distributed/tensor distributed/utils fx/experimental fx/graph fx/interpreter fx/node
   fx/passes fx/proxy multiprocessing/spawn multiprocessing/reductions profiler/profiler`.split(/\s+/),
)
/** The folder of PyTorch's sources, such as `/opt/pytorch/torch/`, if the path is certainly in it; else null. */
export function pytorchRoot(path: string): string | null {
  for (const { index, names } of placesBelowTorch(path)) {
    if (names.some(name => CERTAIN.has(name))) return path.slice(0, index + TORCH.length)
  }
  return null
}

/** The folder of a program that TorchScript has saved. */
const SAVED = '__torch__/'

/**
 * Whether a path outside of installed packages is of PyTorch; `roots` are those that other paths have told, null if
 * PyTorch is an installed package, so that only cut paths and saved programs have it elsewhere.
 */
export function isPytorchSource(path: string, roots: ReadonlySet<string> | null): boolean {
  return placesBelowTorch(path).some(({ index, names }) => {
    if (roots === null && index > 0 && !path.endsWith(SAVED, index)) return false
    if (names.some(name => CERTAIN.has(name) || (index === 0 && LIKELY.has(name)))) return true
    return index > 0 && roots !== null && roots.has(path.slice(0, index + TORCH.length))
  })
}

/** More folders called `torch` than any path has; only a damaged file has a thousand. */
const MOST_PLACES = 4
const TORCH = 'torch/'

/** The last folders called `torch`: where each is, and its next name, alone and with the one after. */
function placesBelowTorch(path: string): { index: number; names: string[] }[] {
  const places: { index: number; names: string[] }[] = []
  let index = path.lastIndexOf(TORCH)
  for (; index >= 0 && places.length < MOST_PLACES; index = index === 0 ? -1 : path.lastIndexOf(TORCH, index - 1)) {
    if (index > 0 && path[index - 1] !== '/') continue
    const [first, second] = path.slice(index + TORCH.length).split('/', 2)
    const names = second === undefined ? [first] : [first, `${first}/${second}`]
    places.push({ index, names: names.map(name => name.replace(/\.py$/, '')) })
  }
  return places
}

/** Files that only pass a call on. */
const DISPATCH = new Set(
  `_ops.py _compile.py overrides.py utils/_device.py utils/_contextlib.py utils/_python_dispatch.py autograd/function.py
   _dynamo/eval_frame.py _dynamo/external_utils.py _prims_common/wrappers.py _library/custom_ops.py _library/autograd.py
   multiprocessing/spawn.py distributed/run.py distributed/launch.py distributed/c10d_logger.py`.split(/\s+/),
)
const LAUNCH = ['distributed/elastic/', 'distributed/launcher/']
const WRAPPERS: Readonly<Record<string, readonly string[]>> = {
  'nn/modules/module.py': ['_call_impl', '_wrapped_call_impl'],
  'optim/optimizer.py': ['wrapper', '_use_grad', 'maybe_fallback'],
}

/** Whether a line of PyTorch only passes a call on, or starts a program. */
export function isDispatch(path: string, name: string): boolean {
  const file = path.slice(path.lastIndexOf(TORCH) + TORCH.length)
  return DISPATCH.has(file) || LAUNCH.some(start => file.startsWith(start)) || (WRAPPERS[file]?.includes(name) ?? false)
}
