// Finds the functions of the project that must be able to stop in the middle: functions that touch shared memory
// where threads meet, that call a callback, or that call such a function. They become generators (rewrite.ts). A
// function that native code calls, a parameter's default or a computed method cannot stop. Its accesses happen
// without a stop, and are listed.

import ts from 'typescript'

/** Array methods with a version in array-callbacks.ts, whose callbacks may stop. */
const ARRAY_METHODS = ['map', 'filter', 'forEach', 'some', 'every', 'find', 'findIndex', 'reduce', 'flatMap', 'from']
const TYPED_ARRAYS = /^((Int|Uint)(8|16|32)|Uint8Clamped|Float(32|64))Array$|^Buffer$/
const NATIVE_NAMES = ['toString', 'toJSON', 'valueOf']

/**
 * How a file takes part: its accesses are points at which others may go on; it only keeps to the memory model; it
 * never stops.
 */
export type Part = 'points' | 'quiet' | 'atomic'

export class Colours {
  /** the accesses that run without a stop, with the reason */
  readonly atomic: string[] = []
  private readonly parents = new Map<ts.Node, ts.Node>()
  private readonly coloured = new Set<ts.Node>()
  private readonly callers = new Map<ts.Node, Set<ts.Node>>()

  constructor(
    readonly checker: ts.TypeChecker,
    files: readonly ts.SourceFile[],
    readonly partOf: (file: ts.SourceFile) => Part,
    /** whether all that a declaration declares may stop, whatever it looks like */
    private readonly isAlways: (declaration: ts.Node) => boolean,
  ) {
    for (const file of files) this.joinFamilies(file)
    for (const file of files) if (partOf(file) !== 'atomic') this.walk(file)
    for (const node of [...this.coloured]) this.spread(node)
  }

  /** Whether a function, method, accessor or the construction of a class is, or may be, a generator. */
  has(declaration: ts.Node): boolean {
    return this.coloured.has(this.family(declaration)) && !this.mustBePlain(declaration)
  }

  /** The function that a node belongs to; null for module code and for a parameter's default. */
  ownerOf(node: ts.Node): ts.Node | null {
    for (let at = node; at.parent !== undefined; at = at.parent) {
      const { parent } = at
      if (ts.isParameter(parent) && parent.initializer === at) return null
      if (ts.isFunctionLike(parent) && 'body' in parent && parent.body === at) {
        return ts.isConstructorDeclaration(parent) ? parent.parent : parent
      }
      if (ts.isPropertyDeclaration(parent) && parent.initializer === at) {
        return hasModifier(parent, ts.SyntaxKind.StaticKeyword) ? null : parent.parent
      }
    }
    return null
  }

  /** The functions that a call or an accessor may reach; `unknown` for a function passed as a value. */
  targetsOf(node: ts.Node): { declarations: readonly ts.Node[]; isUnknown: boolean; isNative: boolean } {
    const declarations = this.declarationsOf(node)
    const ours = declarations.filter(each => this.isOurs(each))
    const isNative = ours.length === 0 && declarations.length > 0
    const isUnknown = !isNative && (ours.length === 0 || ours.some(each => !hasBody(each) || this.isAlways(each)))
    return { declarations: ours, isUnknown: isUnknown && ts.isCallLikeExpression(node), isNative }
  }

  /** Whether what a call returns may be a generator of ours that is to be run. */
  mayStop(node: ts.Node): boolean {
    const { declarations, isUnknown } = this.targetsOf(node)
    return isUnknown || declarations.some(each => this.coloured.has(this.family(each)))
  }

  isTypedArray(node: ts.Expression): boolean {
    const name = this.checker.getTypeAtLocation(node).symbol?.name
    return name !== undefined && TYPED_ARRAYS.test(name)
  }

  /** Whether a generator of the project is run step by step with `next()`: its type says that it takes no values. */
  isStepped(node: ts.Expression): boolean {
    const type = this.checker.getTypeAtLocation(node)
    if (type.symbol?.name !== 'Generator') return false
    const taken = this.checker.getTypeArguments(type as ts.TypeReference)[2]
    return taken !== undefined && (taken.flags & ts.TypeFlags.Void) !== 0
  }

  /** Whether a call is a step of such a generator. */
  isStep(node: ts.CallExpression): node is ts.CallExpression & { readonly expression: ts.PropertyAccessExpression } {
    const { expression } = node
    return (
      ts.isPropertyAccessExpression(expression) &&
      expression.name.text === 'next' &&
      this.isStepped(expression.expression)
    )
  }

  /** A native method of arrays that is called with a function that may stop. */
  isArrayCall(node: ts.CallExpression): boolean {
    const { expression } = node
    if (!ts.isPropertyAccessExpression(expression) || !ARRAY_METHODS.includes(expression.name.text)) return false
    if (!this.targetsOf(node).isNative) return false
    return node.arguments.some(each => {
      if (ts.isArrowFunction(each) || ts.isFunctionExpression(each)) return this.has(each)
      const symbol = ts.isIdentifier(each) ? this.checker.getSymbolAtLocation(each) : undefined
      return this.resolved(symbol).some(declaration => this.coloured.has(this.family(declaration)))
    })
  }

  /** Whether a function cannot be a generator, since native code calls it. */
  mustBePlain(node: ts.Node): boolean {
    if (this.partOf(node.getSourceFile()) === 'atomic') return true
    if (ts.isClassLike(node)) return this.hasNativeBase(node)
    if (hasModifier(node, ts.SyntaxKind.AsyncKeyword) || ts.isSetAccessor(node)) return true
    const name = (node as Partial<ts.NamedDeclaration>).name
    if (name !== undefined && (ts.isComputedPropertyName(name) || NATIVE_NAMES.includes(name.getText()))) return true
    if (!ts.isArrowFunction(node) && !ts.isFunctionExpression(node) && !ts.isObjectLiteralElement(node)) return false
    let at: ts.Node = node
    while (ts.isObjectLiteralElement(at.parent) || ts.isObjectLiteralExpression(at.parent)) at = at.parent
    const call = at.parent
    if ((!ts.isCallExpression(call) && !ts.isNewExpression(call)) || call.expression === at) return false
    if (!this.targetsOf(call).isNative) return false
    return !(ts.isPropertyAccessExpression(call.expression) && ARRAY_METHODS.includes(call.expression.name.text))
  }

  private walk(node: ts.Node): void {
    const owner = this.ownerOf(node)
    if (owner !== null) this.note(node, owner)
    node.forEachChild(child => this.walk(child))
  }

  /** Notes the facts of one node about its function. */
  private note(node: ts.Node, owner: ts.Node): void {
    const points = this.partOf(node.getSourceFile()) === 'points'
    if (points && ts.isElementAccessExpression(node) && this.isTypedArray(node.expression)) this.mark(owner)
    if (ts.isCallExpression(node) && isAtomics(node)) {
      this.mark(owner)
      return
    }
    if (ts.isCallExpression(node) && this.isStep(node)) this.mark(owner)
    if (!ts.isCallExpression(node) && !ts.isNewExpression(node) && !ts.isPropertyAccessExpression(node)) return
    const { declarations, isUnknown, isNative } = this.targetsOf(node)
    if (isUnknown) this.mark(owner)
    for (const each of declarations) this.connect(owner, each)
    if (ts.isPropertyAccessExpression(node) || !isNative) return
    for (const each of node.arguments ?? []) {
      if (!ts.isArrowFunction(each) && !ts.isFunctionExpression(each)) continue
      if (this.mustBePlain(each)) this.atomic.push(`${positionOf(each)}: native code calls it`)
      else this.connect(owner, each)
    }
  }

  private declarationsOf(node: ts.Node): readonly ts.Node[] {
    const { checker } = this
    if (ts.isPropertyAccessExpression(node)) {
      const all = this.resolved(checker.getSymbolAtLocation(node.name))
      return all.some(each => ts.isGetAccessor(each) || ts.isPropertySignature(each)) ? all : []
    }
    if (!ts.isCallExpression(node) && !ts.isNewExpression(node)) return []
    const { expression } = node
    const name = ts.isPropertyAccessExpression(expression) ? expression.name : expression
    if (expression.kind === ts.SyntaxKind.SuperKeyword || ts.isNewExpression(node)) {
      const type = checker.getTypeAtLocation(node.kind === ts.SyntaxKind.NewExpression ? node : expression)
      const all = type.symbol?.declarations ?? []
      return all.filter(each => ts.isClassLike(each) || !this.isOurs(each))
    }
    const named = this.resolved(checker.getSymbolAtLocation(name)).filter(each => !ts.isParameter(each))
    const signature = checker.getResolvedSignature(node)?.declaration
    const ours = named.filter(each => isNamed(each))
    return ours.length > 0 ? ours : signature === undefined ? named : [signature]
  }

  private resolved(symbol: ts.Symbol | undefined): readonly ts.Declaration[] {
    if (symbol === undefined) return []
    const target = symbol.flags & ts.SymbolFlags.Alias ? this.checker.getAliasedSymbol(symbol) : symbol
    return target.declarations ?? []
  }

  /** Members of the same name in a class and its base types are coloured together. */
  private joinFamilies(node: ts.Node): void {
    if (ts.isClassLike(node) || ts.isInterfaceDeclaration(node)) {
      for (const { types } of node.heritageClauses ?? []) {
        for (const base of types) this.joinWith(node, this.checker.getTypeAtLocation(base))
      }
    } else if (ts.isObjectLiteralExpression(node)) {
      const type = this.checker.getContextualType(node)
      if (type !== undefined) this.joinMembers(node.properties, type)
    }
    node.forEachChild(child => this.joinFamilies(child))
  }

  private joinWith(node: ts.ClassLikeDeclaration | ts.InterfaceDeclaration, base: ts.Type): void {
    for (const each of base.symbol?.declarations ?? []) {
      if (ts.isClassLike(each) && ts.isClassLike(node) && this.isOurs(each)) this.join(node, each)
    }
    this.joinMembers(node.members, base)
  }

  private joinMembers(members: readonly ts.NamedDeclaration[], base: ts.Type): void {
    for (const member of members) {
      if (member.name === undefined || ts.isComputedPropertyName(member.name)) continue
      const symbol = base.getProperty(member.name.getText())
      for (const each of symbol?.declarations ?? []) {
        if (!this.isOurs(each)) continue
        this.join(member, each)
        const value = ts.isPropertyAssignment(member) ? member.initializer : member
        if (value !== member) this.join(value, each)
      }
    }
  }

  private isOurs(node: ts.Node): boolean {
    const file = node.getSourceFile()
    return !file.isDeclarationFile && !file.fileName.includes('/node_modules/')
  }

  private hasNativeBase(node: ts.ClassLikeDeclaration): boolean {
    const base = node.heritageClauses?.find(each => each.token === ts.SyntaxKind.ExtendsKeyword)?.types[0]
    if (base === undefined) return false
    const [declaration] = this.checker.getTypeAtLocation(base).symbol?.declarations ?? []
    if (declaration === undefined || !this.isOurs(declaration)) return true
    return ts.isClassLike(declaration) && this.hasNativeBase(declaration)
  }

  private mark(owner: ts.Node): void {
    if (this.mustBePlain(owner)) this.atomic.push(`${positionOf(owner)}: cannot stop`)
    else this.coloured.add(this.family(owner))
  }

  private connect(owner: ts.Node, target: ts.Node): void {
    const key = this.family(target)
    const callers = this.callers.get(key) ?? new Set()
    this.callers.set(key, callers.add(owner))
    if (this.isAlways(target)) this.coloured.add(key)
  }

  private spread(first: ts.Node): void {
    for (const open = [first]; open.length > 0; ) {
      for (const caller of this.callers.get(open.pop()!) ?? []) {
        const key = this.family(caller)
        if (this.coloured.has(key)) continue
        this.mark(caller)
        if (this.coloured.has(key)) open.push(key)
      }
    }
  }

  private family(node: ts.Node): ts.Node {
    let root = node
    for (let next = this.parents.get(root); next !== undefined; next = this.parents.get(root)) root = next
    return root
  }

  private join(one: ts.Node, other: ts.Node): void {
    const [a, b] = [this.family(one), this.family(other)]
    if (a !== b) this.parents.set(a, b)
  }
}

export function isAtomics(node: ts.CallExpression): boolean {
  return ts.isPropertyAccessExpression(node.expression) && node.expression.expression.getText() === 'Atomics'
}

export function hasModifier(node: ts.Node, kind: ts.SyntaxKind): boolean {
  return ts.canHaveModifiers(node) && (ts.getModifiers(node)?.some(each => each.kind === kind) ?? false)
}

export function positionOf(node: ts.Node): string {
  const file = node.getSourceFile()
  return `${file.fileName.split('/').slice(-2).join('/')}:${file.getLineAndCharacterOfPosition(node.getStart()).line + 1}`
}

/** Functions with a name; the rest are passed as values. */
function isNamed(node: ts.Node): boolean {
  return hasBody(node) || ts.isMethodSignature(node) || ts.isPropertySignature(node)
}

/** Declarations whose calls reach them, or their overrides, and nothing else. */
function hasBody(node: ts.Node): boolean {
  return ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node) || ts.isAccessor(node) || ts.isClassLike(node)
}
