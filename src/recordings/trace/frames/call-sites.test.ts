import assert from 'node:assert/strict'
import { test } from 'node:test'
import { StackTable } from '../stack-table.js'
import { CallSites, callName } from './call-sites.js'

type Line = readonly [filename: string, line: number, name: string]

const PYTORCH = '/env/lib/python3.11/site-packages/torch'
const CAPTURE: readonly Line[] = [
  ['??', 0, 'torch::unwind::unwind()'],
  ['??', 0, 'torch::CapturedTraceback::gather(bool, bool, bool)'],
  ['', 0, 'c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)'],
  ['??', 0, 'at::detail::empty_cuda(c10::ArrayRef<long>)'],
]
const BINDING: Line = ['python_torch_functions_2.cpp', 0, 'torch::autograd::THPVariable_linear(_object*)']
const LINEAR: Line = [`${PYTORCH}/nn/modules/linear.py`, 125, 'forward']
const CALL: Line = [`${PYTORCH}/nn/modules/module.py`, 1790, '_call_impl']
const INTERPRETER: Line = ['/src/Python/ceval.c', 982, 'PyEval_EvalCode']
const MODEL: Line = ['/home/me/net/model.py', 44, 'forward']
const TRAIN: Line = ['/home/me/net/train.py', 60, 'step']
const ENGINE: Line = [
  '??',
  0,
  'torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)',
]
const THREAD: Line = ['thread48.o', 0, 'execute_native_thread_routine']
const NODE: Line = ['??', 0, 'torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)']
const COMPILED: Line = ['/tmp/torchinductor_me/ab/cabc123def456.py', 1204, 'call']

function sitesOf(lines: readonly Line[]) {
  const table = new StackTable()
  const stack = table.number(lines.map(line => table.entry(...line)))
  const sites = CallSites.of(table.callStacks())
  const { site, through } = sites.siteOf(stack)
  return { site, through, calls: sites.callsOf(stack).map(callName) }
}

test("a block is named by the program's innermost line, and by the line of PyTorch that it called", () => {
  const { site, through, calls } = sitesOf([...CAPTURE, BINDING, LINEAR, INTERPRETER, CALL, INTERPRETER, MODEL, TRAIN])
  assert.deepEqual([site, through], ['/home/me/net/model.py:44 forward', `${PYTORCH}/nn/modules/linear.py:125 forward`])
  assert.deepEqual(calls, [through, site, '/home/me/net/train.py:60 step'])
})

test('a block of the thread of autograd is named by its innermost backward operator', () => {
  const outer: Line = ['??', 0, 'torch::autograd::generated::SumBackward0::apply(std::vector<at::Tensor>&&)']
  const kernel: Line = ['??', 0, 'at::native::mm_out(at::Tensor const&)']
  const { site, through, calls } = sitesOf([...CAPTURE, kernel, NODE, outer, ENGINE, THREAD])
  assert.deepEqual([site, through], ['backward of mm', null])
  assert.deepEqual(calls, ['at::native::mm_out', 'backward of mm', 'backward of sum'])
})

test('a stack of torch.profiler has an operator once', () => {
  const call: Line = ['', 0, 'autograd::engine::evaluate_function: AddmmBackward0']
  const { site, calls } = sitesOf([['', 0, 'aten::mm'], ['', 0, 'AddmmBackward0'], call])
  assert.deepEqual([site, calls], ['backward of addmm', ['aten::mm', 'backward of addmm']])
})

test('without a backward operator it is named by C++ that says something, else by its group', () => {
  const workspace: Line = ['??', 0, 'at::cuda::getNewWorkspace()']
  assert.equal(sitesOf([...CAPTURE, workspace, ENGINE, THREAD]).site, 'at::cuda::getNewWorkspace')
  assert.equal(sitesOf([['??', 0, 'at::_ops::zeros::call(c10::ArrayRef<long>)']]).site, 'at::zeros')
  const groups: [string, readonly Line[]][] = [
    ["autograd's thread", [...CAPTURE, ENGINE, THREAD]],
    ['C++ without names', [...CAPTURE.slice(0, 3), ['??', 0, '??'], THREAD]],
    ["Python's own library", [['/usr/lib/python3.11/threading.py', 1002, '_bootstrap']]],
  ]
  for (const [name, lines] of groups) {
    const { site, calls } = sitesOf(lines)
    assert.deepEqual([site, calls], [name, [name]])
  }
})

test('generated code leads to the line of the program behind it', () => {
  const resumed: Line = ['/home/me/net/model.py', 44, 'torch_dynamo_resume_in_forward_at_40']
  const { site, through } = sitesOf([
    COMPILED,
    [`${PYTORCH}/_inductor/output_code.py`, 460, '__call__'],
    resumed,
    TRAIN,
  ])
  assert.deepEqual([site, through], ['/home/me/net/model.py:44 forward', 'generated code cabc123def456.py:1204 call'])
  const backward: Line = [`${PYTORCH}/_functorch/_aot_autograd/runtime_wrappers.py`, 2000, 'backward']
  assert.equal(sitesOf([COMPILED, backward, ENGINE]).site, 'generated code cabc123def456.py:1204 call')
  const graph: Line = [`<eval_with_key>.3 from ${PYTORCH}/fx/experimental/proxy_tensor.py:551 in wrapped`, 7, 'forward']
  assert.equal(sitesOf([graph, MODEL]).through, 'generated code <eval_with_key>.3:7 forward')
  assert.equal(sitesOf([['<string>', 9, 'record'], TRAIN]).site, '/home/me/net/train.py:60 step')
})

test('a cell of a notebook is a line of the program, and the notebook is machinery', () => {
  const cell: Line = ['<ipython-input-5-0a1b2c3d4e5f>', 3, '<cell line: 1>']
  const shell: Line = ['/env/lib/python3.10/dist-packages/IPython/core/interactiveshell.py', 3553, 'run_code']
  const { site, calls } = sitesOf([LINEAR, cell, shell])
  assert.equal(site, '<ipython-input-5-0a1b2c3d4e5f>:3 <cell line: 1>')
  assert.equal(calls.length, 2)
  assert.equal(sitesOf([LINEAR, shell]).site, `${PYTORCH}/nn/modules/linear.py:125 forward`)
})

test('no stack has no site', () => {
  assert.deepEqual(sitesOf([]), { site: null, through: null, calls: [] })
})
