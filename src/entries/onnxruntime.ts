// cuda-mempool/onnxruntime: pools that ONNX Runtime takes its memory from.

export type { OnnxSession } from '../onnxruntime/guarded-session.js'
export {
  type OnnxExecutionProvider,
  type OnnxRuntimeOptions,
  type OnnxRuntimeStats,
  type OnnxScopeOptions,
  type OnnxSessionOptions,
  type ServedOnnxRuntime,
  serveOnnxRuntime,
} from '../onnxruntime/serve.js'
