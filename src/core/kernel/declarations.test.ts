import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { declaredAs, declaredKernels } from './declarations.js'

/** Name and parameters of each kernel, as `name(first: .u64, second: Params)`. */
function read(source: string): string[] {
  return declaredKernels(source).map(({ name, isExternC, parameters }) => {
    const list = parameters.map(each => `${each.name}: ${each.ptxType ?? each.typeName}`).join(', ')
    return `${isExternC ? 'C ' : ''}${name}(${list})`
  })
}

describe('kernels declared in source text', () => {
  it('are found in every way of writing them', () => {
    const source = `
      #include "cuda_mempool.cuh"
      // extern "C" __global__ void in_a_comment(int x) {}
      /* __global__ void in_another(int x); */
      extern "C" __global__ void plain(float *data, int count) { data[0] = count; }
      extern "C" __global__
      void __launch_bounds__(256, 2) bounded(const float* __restrict__ data) {}
      template <typename T> __global__ void scale(T *data, T factor);
      namespace tools { static __global__ void none(void) {} }
      __device__ int helper(int x) { return x; }`
    assert.deepEqual(read(source), [
      'C plain(data: .u64, count: .s32)',
      'C bounded(data: .u64)',
      'scale(data: .u64, factor: T)',
      'none()',
    ])
  })

  it('are all C within an extern "C" block', () => {
    assert.deepEqual(read('extern "C" {\n__global__ void a(int x) {}\n__global__ void b() {}\n}'), [
      'C a(x: .s32)',
      'C b()',
    ])
  })

  it('have parameters of every arithmetic type', () => {
    const types: readonly [string, string][] = [
      ['bool', '.u8'],
      ['char', '.s8'],
      ['unsigned char', '.u8'],
      ['short int', '.s16'],
      ['unsigned', '.u32'],
      ['unsigned int', '.u32'],
      ['const int', '.s32'],
      ['long', '.s64'],
      ['unsigned long long', '.u64'],
      ['long unsigned int', '.u64'],
      ['long long unsigned int', '.u64'],
      ['short unsigned int', '.u16'],
      ['long long int', '.s64'],
      ['size_t', '.u64'],
      ['std::uint64_t', '.u64'],
      ['int8_t', '.s8'],
      ['uint16_t', '.u16'],
      ['float', '.f32'],
      ['double', '.f64'],
      ['Node * const *', '.u64'],
      ['Params', 'Params'],
      ['const struct Params', 'Params'],
      ['cuda::Pair<int, long>', 'cuda::Pair<int, long>'],
    ]
    for (const [type, expected] of types) {
      assert.deepEqual(read(`__global__ void k(${type} x, int last)`), [`k(x: ${expected}, last: .s32)`], type)
    }
    assert.deepEqual(read('__global__ void k(int x[], int *y)'), ['k(x: .u64, y: .u64)'])
  })

  it('are named by expressions', () => {
    assert.deepEqual(['scale', 'scale<float>', 'a::b::scale<a::T>'].map(declaredAs), ['scale', 'scale', 'scale'])
  })
})
