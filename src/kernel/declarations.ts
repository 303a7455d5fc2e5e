// The kernels that CUDA C++ source declares, read from their text without compiling it: for the simulated device, which
// runs TypeScript functions in their place and only needs to know their parameters, and for messages, since compiled code
// has lost the parameters' names. Only what the text itself says is seen: no includes, no macros.

export interface DeclaredParameter {
  readonly name: string
  /** as PTX declares it, say `.u64`; null for a type that is not one of the language's own */
  readonly ptxType: string | null
  readonly typeName: string
}

export interface DeclaredKernel {
  readonly name: string
  readonly isExternC: boolean
  readonly parameters: readonly DeclaredParameter[]
}

const KERNEL =
  /(extern\s*"C"\s*)?(?:static\s+|inline\s+)*__global__\s+(?:(?:static|inline|void)\s+|__launch_bounds__\s*\([^)]*\)\s*)*([A-Za-z_]\w*)\s*\(([^)]*)\)/g

/** The kernels in the order of their text; a declaration and its definition count once. */
export function declaredKernels(source: string): DeclaredKernel[] {
  const text = source.replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, ' ')
  const insideExternC = /extern\s*"C"\s*\{/.test(text)
  const kernels = new Map<string, DeclaredKernel>()
  for (const [, externC, name, list] of text.matchAll(KERNEL)) {
    const parameters = listed(list).map(parameterOf)
    kernels.set(name, { name, isExternC: externC !== undefined || insideExternC, parameters })
  }
  return [...kernels.values()]
}

/** The kernel that C++ names so: `tools::scale<float>` is declared as `scale`. */
export function declaredAs(expression: string): string {
  return expression.replace(/<.*$/s, '').split('::').at(-1)!.trim()
}

/** The parts between commas that are not within the brackets of a template. */
function listed(list: string): string[] {
  const parts = ['']
  let depth = 0
  for (const character of list) {
    if (character === '<') depth++
    if (character === '>') depth--
    if (character === ',' && depth === 0) parts.push('')
    else parts[parts.length - 1] += character
  }
  return parts.map(part => part.trim()).filter(part => part !== '' && part !== 'void')
}

const INTEGERS: Readonly<Record<string, string>> = {
  bool: '.u8',
  char: '.s8',
  short: '.s16',
  int: '.s32',
  long: '.s64',
  'long long': '.s64',
  int8_t: '.s8',
  int16_t: '.s16',
  int32_t: '.s32',
  int64_t: '.s64',
  uint8_t: '.u8',
  uint16_t: '.u16',
  uint32_t: '.u32',
  uint64_t: '.u64',
  size_t: '.u64',
  uintptr_t: '.u64',
  float: '.f32',
  double: '.f64',
}

function parameterOf(text: string): DeclaredParameter {
  const [, type, name, array] = /^(.*?)([A-Za-z_]\w*)\s*(\[[^\]]*\])?$/s.exec(text) ?? ['', text, '', undefined]
  const isPointer = type.includes('*') || array !== undefined
  const typeName = type
    .replace(/\b(const|volatile|struct|__restrict__|restrict|__grid_constant__|std::)\s*|\*/g, ' ')
    .replace(/std::/g, '')
    .trim()
    .replace(/\s+/g, ' ')
  return { name, typeName, ptxType: isPointer ? '.u64' : numberType(typeName) }
}

/** `unsigned long long int` → `.u64` */
function numberType(typeName: string): string | null {
  const isUnsigned = /\bunsigned\b/.test(typeName)
  const plain = typeName.replace(/\b(un)?signed\b/g, '').trim()
  const base = plain === '' ? 'int' : plain.replace(/\b(short|long) int$/, '$1')
  const type = Object.hasOwn(INTEGERS, base) ? INTEGERS[base] : null
  return isUnsigned && type !== null ? type.replace('.s', '.u') : type
}
