// Finds the kernels that CUDA C++ source declares, without compiling it. The simulated device needs their parameters,
// since it runs TypeScript functions in their place. Messages need the parameters' names, which compiled code has
// lost. Includes and macros are not followed.

export interface DeclaredParameter {
  readonly name: string
  /** type in PTX, for example `.u64`; null for a type that is not built into the language */
  readonly ptxType: string | null
  readonly typeName: string
}

/** The types of small floats, which compilers pass as structures of 2 bytes. */
const SMALL_FLOATS: Readonly<Record<string, 'float16' | 'bfloat16'>> = {
  half: 'float16',
  __half: 'float16',
  nv_bfloat16: 'bfloat16',
  __nv_bfloat16: 'bfloat16',
}

/** The format of a parameter that is a small float; undefined for any other. */
export function smallFloatOf({ typeName, ptxType }: DeclaredParameter): 'float16' | 'bfloat16' | undefined {
  return ptxType === null && Object.hasOwn(SMALL_FLOATS, typeName) ? SMALL_FLOATS[typeName] : undefined
}

export interface DeclaredKernel {
  readonly name: string
  readonly isExternC: boolean
  readonly parameters: readonly DeclaredParameter[]
}

const KERNEL =
  /(extern\s*"C"\s*)?(?:static\s+|inline\s+)*__global__\s+(?:(?:static|inline|void)\s+|__launch_bounds__\s*\([^)]*\)\s*)*([A-Za-z_]\w*)\s*\(([^)]*)\)/g

/** The kernels in the order of the text; a declaration and its definition count once. */
export function declaredKernels(source: string): DeclaredKernel[] {
  const text = source.replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, ' ')
  const insideExternC = /extern\s*"C"\s*\{/.test(text)
  const kernels = new Map<string, DeclaredKernel>()
  for (const [, externC, name, list] of text.matchAll(KERNEL)) {
    const parameters = declaredParameters(list)
    kernels.set(name, { name, isExternC: externC !== undefined || insideExternC, parameters })
  }
  return [...kernels.values()]
}

/** The parameters in a list as C++ writes it, without its parentheses. */
export function declaredParameters(list: string): DeclaredParameter[] {
  return listed(list).map(parameterOf)
}

/** The declared name of a kernel that C++ names by an expression: `scale` for `tools::scale<float>`. */
export function declaredAs(expression: string): string {
  return expression.replace(/<.*$/s, '').split('::').at(-1)!.trim()
}

/** Splits at the commas outside template brackets. */
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
  const plain = typeName.replace(/\b(un)?signed\b\s*/g, '').trim()
  const base = plain === '' ? 'int' : plain.replace(/\b(short|long) int$/, '$1')
  const type = Object.hasOwn(INTEGERS, base) ? INTEGERS[base] : null
  return isUnsigned && type !== null ? type.replace('.s', '.u') : type
}
