import assert from 'node:assert/strict'
import { test } from 'node:test'
import { frameKinds } from './classify.js'
import { FrameKind } from './frame-kind.js'

const NAMES = Object.fromEntries(Object.entries(FrameKind).map(([name, kind]) => [kind, name]))

/** The kind of each file, as the line of a function `f` beside the others. */
function kindsOf(...files: readonly string[]): string[] {
  return frameKinds(files.map(filename => ({ filename, line: 7, name: 'f' }))).map(kind => NAMES[kind])
}

/** The kind of each function of C++ without a file. */
function nativeKindsOf(...names: readonly string[]): string[] {
  return frameKinds(names.map(name => ({ filename: '??', line: 0, name }))).map(kind => NAMES[kind])
}

const each = (kind: string, count: number) => Array<string>(count).fill(kind)

test("PyTorch's own folder is known on each system", () => {
  const files = [
    '/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py',
    '/usr/local/lib/python3.10/dist-packages/torch/functional.py',
    '/opt/conda/envs/torch/lib/python3.11/site-packages/torch/optim/new_one.py',
    'C:\\Python310\\Lib\\site-packages\\torch\\nn\\modules\\linear.py',
    'D:/ComfyUI/python_embeded/Lib/site-packages/torch/nn/functional.py',
    '/env/lib/python3.8/site-packages/torch-1.9.0-py3.8-linux-x86_64.egg/torch/nn/init.py',
    '/env/lib/python3.11/site-packages/triton/runtime/jit.py',
  ]
  assert.deepEqual(kindsOf(...files), each('pytorch', files.length))
  const notInstalled = ['/opt/pytorch/torch/nn/modules/module.py', 'torch/optim/adam.py', 'torch/utils/checkpoint.py']
  assert.deepEqual(kindsOf(...notInstalled), each('pytorch', notInstalled.length))
})

test('a folder called torch, or almost so, is not PyTorch', () => {
  const programs = [
    '/home/user/torch/project/train.py',
    '/home/user/torch/train.py',
    '/home/user/torch/utils/data/loader.py',
    '/home/user/torch/nn/model.py',
    '/home/user/torch_utils/nn/modules/linear.py',
    '/data/pytorch/model.py',
    'C:\\work\\torch\\train.py',
    'torch/project/train.py',
  ]
  assert.deepEqual(kindsOf(...programs), each('program', programs.length))
  const libraries = [
    '/opt/conda/envs/torch/lib/python3.11/site-packages/transformers/models/gpt2/modeling_gpt2.py',
    '/env/lib/python3.11/site-packages/torchvision/models/resnet.py',
    '/env/lib/python3.11/site-packages/torch_geometric/nn/conv.py',
    'C:\\envs\\torch\\Lib\\site-packages\\diffusers\\unet.py',
  ]
  assert.deepEqual(kindsOf(...libraries), each('package', libraries.length))
})

test('files below the sources of PyTorch are its own once one of them is certain', () => {
  const [own, other] = ['/build/torch/functional.py', '/home/user/torch/functional.py']
  assert.deepEqual(kindsOf(own, other), ['program', 'program'])
  assert.deepEqual(kindsOf(own, other, '/build/torch/nn/modules/module.py'), ['pytorch', 'program', 'pytorch'])
})

test('where PyTorch is an installed package, other folders of its name are of the program', () => {
  const installed = '/env/lib/python3.11/site-packages/torch/nn/modules/linear.py'
  const own = ['/data/torch/nn/functional.py', '/data/torch/optim/sgd.py', '/data/torch/train.py']
  assert.deepEqual(kindsOf(installed, ...own), ['pytorch', ...each('program', own.length)])
  const saved = 'code/__torch__/torch/nn/modules/linear.py'
  assert.deepEqual(kindsOf(installed, saved, 'torch/optim/adam.py'), each('pytorch', 3))
})

test('launchers, notebooks, debuggers and the library of Python are machinery', () => {
  const files = [
    '/env/lib/python3.10/site-packages/IPython/core/interactiveshell.py',
    '/env/lib/python3.10/site-packages/ipykernel/kernelapp.py',
    '/env/lib/python3.10/site-packages/ipykernel_launcher.py',
    '/env/lib/python3.10/site-packages/torch/distributed/run.py',
    '/env/lib/python3.10/site-packages/torch/_ops.py',
    '/env/lib/python3.10/site-packages/torch/utils/_contextlib.py',
    '/env/bin/torchrun',
    '/home/me/.vscode/extensions/ms-python.debugpy-2024.6/bundled/libs/debugpy/launcher/debuggee.py',
    '/usr/lib/python3.10/runpy.py',
    '/opt/conda/envs/torch/lib/python3.11/copy.py',
    'C:\\Users\\me\\miniconda3\\lib\\threading.py',
    'C:\\Program Files\\Python310\\Lib\\asyncio\\events.py',
    '/opt/ide/plugins/python/helpers/pydev/runner.py',
    'C:\\Users\\me\\miniforge3\\envs\\net\\Lib\\contextlib.py',
    '<frozen runpy>',
    'node:internal/modules/run_main',
  ]
  assert.deepEqual(kindsOf(...files), each('launcher', files.length))
  const programs = [
    'D:\\work\\lib\\copy.py',
    'D:\\python-projects\\net\\lib\\types.py',
    '/home/user/lib/queue.py',
    '/home/user/python/lib/queue.py',
    '/home/user/lib/python3-tools/train.py',
    '/home/user/pydev/train.py',
    '/home/user/net/deepspeed',
    'profile.py',
  ]
  assert.deepEqual(kindsOf(...programs), each('program', programs.length))
})

test("on Windows the folder around the installed packages is Python's library", () => {
  const [packages, library, other] = ['D:\\a\\Lib\\site-packages\\six.py', 'D:\\a\\Lib\\copy.py', 'D:\\b\\Lib\\copy.py']
  assert.deepEqual(kindsOf(packages, library, other), ['package', 'launcher', 'program'])
  assert.deepEqual(kindsOf(library), ['program'])
})

test('a path that begins at a package or at the library is cut, unless PyTorch has its whole path', () => {
  const cut = ['threading.py', 'asyncio/events.py', 'notebook/app.py']
  assert.deepEqual(kindsOf(...cut), each('launcher', cut.length))
  const whole = '/env/lib/python3.11/site-packages/torch/nn/modules/linear.py'
  assert.deepEqual(kindsOf(whole, ...cut), ['pytorch', ...each('program', cut.length)])
})

test('the wrapper that a package puts around a function is machinery', () => {
  const kindOf = (filename: string, name: string) => NAMES[frameKinds([{ filename, line: 7, name }])[0]]
  const folder = '/env/lib/python3.11/site-packages/'
  for (const [file, name] of [
    ['accelerate/hooks.py', 'new_forward'],
    ['transformers/utils/generic.py', 'wrapper'],
    ['accelerate/utils/operations.py', '__call__'],
    ['decorator.py', 'fun'],
  ]) {
    assert.equal(kindOf(folder + file, name), 'launcher')
    assert.equal(kindOf(`/home/user/${file}`, name), 'program')
  }
  assert.equal(kindOf(`${folder}accelerate/utils/operations.py`, 'send_to_device'), 'package')
})

test('lines that a person typed are of the program, and generated ones are not', () => {
  const typed = [
    '<stdin>',
    '<ipython-input-5-0a1b2c3d4e5f>',
    '/tmp/ipykernel_7/123456.py',
    '<python-input-3>',
    '<timed exec>',
  ]
  assert.deepEqual(kindsOf(...typed), each('program', typed.length))
  const made = [
    '/tmp/torchinductor_user/ab/cabc123def456.py',
    '/cache/inductor/xk/cxkabcdefghij2345.py',
    'C:\\Users\\me\\AppData\\Local\\Temp\\torchinductor_me\\ab\\cabc123def456.py',
    '<eval_with_key>.12',
    '<eval_with_key>.3 from /env/lib/python3.11/site-packages/torch/fx/experimental/proxy_tensor.py:551 in wrapped',
    '<string>',
    '<@beartype(net.forward) at 0x7f>',
  ]
  assert.deepEqual(kindsOf(...made), each('generated', made.length))
  const own = ['/home/user/torch_compile_tests/net.py', '/home/user/my/cmyfileabcdefg.py']
  assert.deepEqual(kindsOf(...own), each('program', own.length))
  const command = ['<module>', 'main'].map(name => ({ filename: '<string>', line: 1, name }))
  assert.deepEqual(frameKinds(command), [FrameKind.program, FrameKind.program])
})

test('capture, allocators, dispatch, CPython and threads are machinery of C++', () => {
  const names = [
    'torch::unwind::unwind()',
    'torch::CapturedTraceback::gather(bool, bool, bool)',
    'torch::cuda::(anonymous namespace)::gather_with_cpp()',
    'c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(signed char, unsigned long)',
    'c10::impl::wrap_kernel_functor_unboxed_<c10::guts::typelist<at::Tensor> >::call(c10::OperatorKernel*)',
    'at::(anonymous namespace)::(anonymous namespace)::wrapper_CUDA_mm(at::Tensor const&)',
    'torch::autograd::VariableType::(anonymous namespace)::mm(c10::DispatchKeySet)',
    'torch::autograd::THPVariable_empty(_object*, _object*, _object*)',
    'pybind11::cpp_function::dispatcher(_object*, _object*, _object*)',
    'void std::__invoke_impl<void, void (*)()>(std::__invoke_other)',
    '_PyEval_EvalFrameDefault',
    'PyObject_Call.localalias',
    'cfunction_call.lto_priv.0',
    'type_call',
    'execute_native_thread_routine',
    '__clone3',
    '__libc_start_main_impl',
    '_start',
    '??',
    '',
    '0x7f3a12b4',
  ]
  assert.deepEqual(nativeKindsOf(...names), each('unnamed', names.length))
  const files = [
    { filename: 'thread48.o', line: 0, name: 'execute_native_thread_routine' },
    { filename: '/usr/local/src/conda/python-3.14.6/Objects/call.c', line: 361, name: 'some_call' },
    { filename: 'RegisterCUDA_0.cpp', line: 0, name: 'at::mm(at::Tensor const&)' },
  ]
  assert.deepEqual(frameKinds(files), Array(3).fill(FrameKind.unnamed))
})

test('operators and libraries of C++ have names, and the functions that allocate for them have not', () => {
  const plumbing = [
    'at::detail::empty_cuda(c10::ArrayRef<long>)',
    'at::native::empty_cuda(c10::ArrayRef<long>)',
    'at::_ops::mm::redispatch(c10::DispatchKeySet)',
    'at::TensorIteratorBase::allocate_or_resize_outputs()',
    'aten::empty',
    'void at::native::gpu_reduce_kernel<float, float>(at::TensorIterator&)',
  ]
  assert.deepEqual(nativeKindsOf(...plumbing), each('plumbing', plumbing.length))
  const named = [
    'at::native::cudnn_convolution(at::Tensor const&)',
    'at::cuda::getCUDABlasLtWorkspace()',
    'ncclCommInitRank',
    'c10d::ProcessGroupNCCL::allgather(std::vector<at::Tensor>&)',
    'aten::mm',
    'at::native::gather(at::Tensor const&, long)',
    'ext::hook(int, torch::autograd::Node*)',
  ]
  assert.deepEqual(nativeKindsOf(...named), each('native', named.length))
})

test('C++ of a program with its line is of the program, whatever the names of CPython and of generated files', () => {
  const own = [
    { filename: '/src/app/csrc/fused.cu', line: 40, name: 'void fused_forward<float>(float*)' },
    { filename: '/src/app/net.cpp', line: 40, name: 'run_model' },
    { filename: '/src/app/net.cpp', line: 40, name: 'map_features(at::Tensor)' },
    { filename: '/src/app/main.cpp', line: 40, name: 'main' },
    { filename: '/src/app/RegisterImages.cpp', line: 40, name: 'align' },
    { filename: '/src/app/core/boxing_match.cpp', line: 40, name: 'align' },
  ]
  assert.deepEqual(frameKinds(own), Array(own.length).fill(FrameKind.nativeLine))
  const machinery = [
    { filename: '/opt/python/Programs/python.c', line: 15, name: 'main' },
    { filename: '/build/libstdc++-v3/src/c++11/thread.cc', line: 82, name: 'execute_native_thread_routine' },
    { filename: '/build/aten/src/ATen/RegisterCUDA.cpp', line: 40, name: 'align' },
    { filename: '/pytorch/aten/src/ATen/core/boxing/KernelFunction.cpp', line: 40, name: 'align' },
  ]
  assert.deepEqual(frameKinds(machinery), Array(machinery.length).fill(FrameKind.unnamed))
})

test('the engine of autograd is known without an operator', () => {
  const names = [
    'torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)',
    'torch::autograd::python::PythonEngine::thread_init(int, std::shared_ptr<torch::autograd::ReadyQueue> const&, bool)',
    'torch::autograd::Node::operator()(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)',
    'torch::autograd::PyNode::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)',
  ]
  assert.deepEqual(nativeKindsOf(...names), each('engine', names.length))
})
