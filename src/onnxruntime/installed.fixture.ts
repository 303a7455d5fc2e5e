// onnxruntime-node for the tests: installed beside this package, or in the folder that a variable names. Its types are
// declared here, since it is not a dependency.

import { createRequire } from 'node:module'

export interface OnnxTensor {
  readonly data: Float32Array
}

export interface OnnxSession {
  run(feeds: Record<string, OnnxTensor>, fetches?: Record<string, OnnxTensor>): Promise<Record<string, OnnxTensor>>
  release(): Promise<void>
}

export interface OnnxRuntime {
  readonly InferenceSession: { create(model: Uint8Array | string, options?: object): Promise<OnnxSession> }
  readonly Tensor: new (type: 'float32', data: Float32Array, shape: readonly number[]) => OnnxTensor
}

export interface Installed {
  readonly ort: OnnxRuntime
  /** its main file */
  readonly library: string
}

/** The package; or the reason why tests are skipped. `CUDA_MEMPOOL_ONNXRUNTIME` names its folder. */
export function installedOnnxRuntime(): Installed | string {
  const require = createRequire(import.meta.url)
  const name = process.env.CUDA_MEMPOOL_ONNXRUNTIME ?? 'onnxruntime-node'
  try {
    return { ort: require(name) as OnnxRuntime, library: require.resolve(name) }
  } catch (error) {
    const [reason] = (error as Error).message.split('\n')
    return `no onnxruntime-node (${reason}); install it, or set CUDA_MEMPOOL_ONNXRUNTIME to its folder`
  }
}
