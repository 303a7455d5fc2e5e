// Names of C++ as people say them: without parameters and templates, and backward operators by their operator.

/** Letters of a name that are read: C++ names of templates reach many thousands. */
const MOST_LETTERS = 2048
const ANONYMOUS = /\(anonymous namespace\)::|`anonymous[ -]namespace'::|\{anonymous\}::/g
/** Endings that compilers give to parts of functions. */
const PART = /\.(?:lto_priv|part|constprop|isra|cold|llvm)\b(?:\.\d+)*| \[clone [^[\]]*\]/g
/** Names that torch.profiler gives, such as `nn.Module: Linear_0`. */
const PROFILED_CALL = /^[\w.]+: /
const BRACKET = /[<>{}(]/g

/** `at::native::add` for `at::Tensor at::native::add<float>(at::Tensor const&)`. */
export function plainName(name: string): string {
  const text = name.slice(0, MOST_LETTERS).replace(ANONYMOUS, '').replace(PART, '').trim()
  if (PROFILED_CALL.test(text)) return text
  // The type that a function returns stands before its name.
  const named = outsideOfBrackets(text).trimEnd().split(' ').at(-1)!
  let plain = named.replace(/^[*&]+/, '')
  for (const end of ['::', 'operator', '::']) while (plain.endsWith(end)) plain = plain.slice(0, -end.length)
  // A lambda and its like have no name of their own.
  return plain === '' ? text : plain
}

/** The text up to a list of parameters, without arguments of templates and descriptions of lambdas. */
function outsideOfBrackets(text: string): string {
  let outside = ''
  let depth = 0
  let from = 0
  for (const { index, 0: bracket } of text.matchAll(BRACKET)) {
    if (depth === 0) outside += text.slice(from, index)
    from = index + 1
    if (bracket === '<' || bracket === '{') depth++
    else if (bracket !== '(') depth = Math.max(0, depth - 1)
    else if (depth === 0 && outside !== '') return outside
  }
  return depth === 0 ? outside + text.slice(from) : outside
}

/** A custom operator in C++ is the argument of a template. */
const CUSTOM = /\bCppNode(?:_apply_functional\w*)?<\s*(?:class |struct )?([\w:]*\w)/
/** Gradients of one tensor that come from several operators, or over several steps, are added. */
const ACCUMULATION = /^torch::autograd::(?:AccumulateGrad|InputBuffer)(?:::|$)/
const APPLIED = /(?:^|::)(\w+?)(?:::apply(?:_with_saved\w*)?|_apply_functional\w*)$/
const BACKWARD = /^(\w+?)Backwards?(?:AutogradNestedTensor)?(\d*)(?:_copy)?$/
/** How torch.profiler names an operator on autograd's thread. */
const PROFILED_OPERATOR = /^(?:autograd::engine::evaluate_function: )?((?:[\w:]*::)?\w+Backwards?\d*)$/
/** Nodes that run others. */
const NO_OPERATORS = ['Node', 'PyNode', 'CppNode', 'GraphRoot', 'Identity', 'Engine', 'TraceableFunction']

/** `backward of select` for the node `SelectBackward0`; null for other functions. */
export function backwardOperator(name: string): string | null {
  const text = name.slice(0, MOST_LETTERS).replace(ANONYMOUS, '')
  const plain = plainName(text)
  // Other functions of autograd have such a parameter.
  if (ACCUMULATION.test(plain)) return 'accumulation of gradients'
  const custom = CUSTOM.exec(text)?.[1]
  if (custom !== undefined) return backwardOf(lastPart(custom))
  const profiled = PROFILED_OPERATOR.exec(text)?.[1]
  if (profiled !== undefined) {
    const [, operator = profiled, number = ''] = BACKWARD.exec(lastPart(profiled)) ?? []
    // Nodes of PyTorch have a number or a namespace; others are named after a class of Python.
    return backwardOf(number !== '' || profiled.includes('::') ? operatorName(operator) : operator)
  }
  if (!text.includes('apply')) return null
  const node = APPLIED.exec(plain)?.[1]
  if (node === undefined || NO_OPERATORS.includes(node)) return null
  const operator = BACKWARD.exec(node)?.[1] ?? (plain.startsWith('torch::autograd::') ? node : undefined)
  return operator === undefined ? null : backwardOf(operatorName(operator))
}

function backwardOf(operator: string): string {
  return `backward of ${operator}`
}

function lastPart(name: string): string {
  return name.split('::').at(-1)!
}

/** `native_layer_norm` for `NativeLayerNorm`: PyTorch makes the name of a node from that of its operator. */
function operatorName(node: string): string {
  return node
    .replace(/([a-z])([A-Z])/g, '$1_$2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1_$2')
    .toLowerCase()
}
