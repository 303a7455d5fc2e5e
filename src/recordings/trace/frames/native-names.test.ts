import assert from 'node:assert/strict'
import { test } from 'node:test'
import { backwardOperator, plainName } from './native-names.js'

const ARGUMENTS = '(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)'

test('a backward operator is named as the operator that it belongs to', () => {
  const names: [string, string][] = [
    [`torch::autograd::generated::SelectBackward0::apply${ARGUMENTS}`, 'backward of select'],
    [`torch::autograd::generated::BmmBackward0::apply${ARGUMENTS}`, 'backward of bmm'],
    [`torch::autograd::generated::NativeLayerNormBackward0::apply${ARGUMENTS}`, 'backward of native_layer_norm'],
    [
      `torch::autograd::generated::MaxPool2DWithIndicesBackward0::apply${ARGUMENTS}`,
      'backward of max_pool2d_with_indices',
    ],
    [`torch::autograd::generated::Im2ColBackward0::apply${ARGUMENTS}`, 'backward of im2col'],
    [`torch::autograd::generated::FftR2CBackward0::apply${ARGUMENTS}`, 'backward of fft_r2c'],
    [`torch::autograd::generated::AsStridedBackward0_copy::apply${ARGUMENTS}`, 'backward of as_strided'],
    ['torch::autograd::generated::MulBackward0::apply_with_saved(at::Tensor const&)', 'backward of mul'],
    ['torch::autograd::generated::MulBackward0_apply_functional(at::Tensor const&)', 'backward of mul'],
    [`torch::autograd::CopySlices::apply${ARGUMENTS}`, 'backward of copy_slices'],
    [`torch::autograd::CopyBackwards::apply${ARGUMENTS}`, 'backward of copy'],
    [`torch::autograd::CppNode<ext::FusedNorm>::apply${ARGUMENTS}`, 'backward of FusedNorm'],
    [`torch::autograd::CppNode<ext::(anonymous namespace)::Clip>::apply${ARGUMENTS}`, 'backward of Clip'],
    ['torch::autograd::CppNode_apply_functional<ext::Pool>(std::vector<at::Tensor>&&)', 'backward of Pool'],
    [`ext::FusedNormBackward::apply${ARGUMENTS}`, 'backward of fused_norm'],
    [`torch::autograd::AccumulateGrad::apply${ARGUMENTS}`, 'accumulation of gradients'],
    ['torch::autograd::InputBuffer::add(unsigned long, at::Tensor&&)', 'accumulation of gradients'],
    ['autograd::engine::evaluate_function: AddmmBackward0', 'backward of addmm'],
    ['autograd::engine::evaluate_function: torch::autograd::AccumulateGrad', 'accumulation of gradients'],
    ['AddmmBackward0', 'backward of addmm'],
    ['MyLossBackward', 'backward of MyLoss'],
    ['torch::autograd::CopyBackwards', 'backward of copy'],
  ]
  for (const [name, operator] of names) assert.equal(backwardOperator(name), operator)
})

test('other functions are no backward operators', () => {
  for (const name of [
    `torch::autograd::PyNode::apply${ARGUMENTS}`,
    `torch::autograd::Node::operator()${ARGUMENTS}`,
    'at::native::convolution_backward(at::Tensor const&)',
    'at::native::apply(at::Tensor const&)',
    'torch::autograd::Engine::evaluate_function(torch::autograd::Node*, torch::autograd::InputBuffer&)',
    'ext::hook(int, torch::autograd::AccumulateGrad*)',
    'Backward',
    'forward',
  ])
    assert.equal(backwardOperator(name), null, name)
})

test('names lose their types, templates, parameters and the marks of compilers', () => {
  const names: [string, string][] = [
    ['at::Tensor at::native::add<float, 4>(at::Tensor const&, c10::Scalar)', 'at::native::add'],
    ['void at::native::(anonymous namespace)::sum_kernel(at::TensorIterator&)', 'at::native::sum_kernel'],
    ['at::native::foo()::{lambda(int)#1}::operator()(int) const', 'at::native::foo'],
    ['ext::Functor<std::vector<int> >::operator()(int)', 'ext::Functor'],
    ['method_vectorcall.part.0.cold', 'method_vectorcall'],
    ['unsigned long* ext::table(int)', 'ext::table'],
    ['nn.Module: Linear_0', 'nn.Module: Linear_0'],
    ['<lambda>', '<lambda>'],
    ['(', '('],
  ]
  for (const [name, plain] of names) assert.equal(plainName(name), plain)
})

test('names of any length and with any brackets are read', () => {
  for (const part of ['<', '>', '(', '::', 'Backward', '.part', ' [clone ', 'operator', 'a::', '_apply_functional']) {
    const name = part.repeat(1e5)
    assert.equal(typeof plainName(name), 'string')
    backwardOperator(name)
  }
})
