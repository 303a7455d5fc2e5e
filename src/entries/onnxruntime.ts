// cuda-mempool/onnxruntime: pools that ONNX Runtime takes its memory from.

export {
  type OnnxExecutionProvider,
  type OnnxRuntimeOptions,
  type OnnxRuntimeStats,
  type OnnxScopeOptions,
  type OnnxSessionOptions,
  type ServedOnnxRuntime,
  serveOnnxRuntime,
} from '../onnxruntime/serve.js'
