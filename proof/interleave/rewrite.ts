// Rewrites one file of the project so that its threads can be stopped at each access to shared memory. It replaces
// parts of the text from the inside out. `$` is the runtime (runtime.ts). A function that may stop becomes a
// generator, and runs the generators that it calls (colours.ts over-estimates). `$.at(…) && (yield)` stops only when
// another thread is to go on.

import ts from 'typescript'
import { type Colours, hasModifier, isAtomics, positionOf } from './colours.js'
import { rewriteClass, type Texts } from './rewrite-class.js'

const ASSIGNMENTS = new Map([
  [ts.SyntaxKind.PlusEqualsToken, '+'],
  [ts.SyntaxKind.MinusEqualsToken, '-'],
  [ts.SyntaxKind.BarEqualsToken, '|'],
  [ts.SyntaxKind.AmpersandEqualsToken, '&'],
  [ts.SyntaxKind.CaretEqualsToken, '^'],
])

/** The text of a file in which everything that may stop is a generator. */
export function rewrite(file: ts.SourceFile, colours: Colours): string {
  return new Rewriter(file, colours).text(file)
}

class Rewriter implements Texts {
  private names = 0

  constructor(
    private readonly file: ts.SourceFile,
    private readonly colours: Colours,
  ) {}

  text(node: ts.Node): string {
    const leading = this.file.text.slice(node.pos, node.getStart(this.file))
    const special = this.special(node)
    return special === null ? this.spliced(node) : leading + special
  }

  /** The text of a node with the parts replaced that `parts` names, by its own rewriting where it names none. */
  spliced(node: ts.Node, parts: ReadonlyMap<ts.Node, string> = new Map(), from = node.pos): string {
    let out = ''
    let at = from
    node.forEachChild(child => {
      if (child.pos < at && child.end <= at) return
      out += this.file.text.slice(at, child.pos) + (parts.get(child) ?? this.text(child))
      at = child.end
    })
    return out + this.file.text.slice(at, node.end)
  }

  private special(node: ts.Node): string | null {
    // The project leaves semicolons out, and what is rewritten begins with a bracket.
    const { parent } = node
    if (
      ts.isExpressionStatement(node) &&
      (ts.isBlock(parent) || ts.isSourceFile(parent) || ts.isCaseOrDefaultClause(parent))
    ) {
      return `;${this.spliced(node, new Map(), node.getStart(this.file))}`
    }
    if (ts.isElementAccessExpression(node)) return this.element(node)
    if (ts.isBinaryExpression(node)) return this.assignment(node)
    if (ts.isPrefixUnaryExpression(node) || ts.isPostfixUnaryExpression(node)) return this.step(node)
    if (ts.isCallExpression(node)) return this.call(node)
    if (ts.isNewExpression(node)) return this.construction(node)
    if (ts.isPropertyAccessExpression(node)) return this.property(node)
    if (ts.isVariableDeclaration(node)) return this.declaration(node)
    if (ts.isForOfStatement(node)) return this.forOf(node)
    if (ts.isYieldExpression(node)) return this.yielded(node)
    if (ts.isClassDeclaration(node)) return this.colours.has(node) ? rewriteClass(node, this) : null
    return ts.isFunctionLike(node) && 'body' in node && node.body !== undefined ? this.functionOf(node) : null
  }

  /** Whether a node is in code that may stop. */
  private canStop(node: ts.Node): boolean {
    const owner = this.colours.ownerOf(node)
    return owner !== null && this.colours.has(owner)
  }

  private isPoint(node: ts.Node): boolean {
    return this.colours.partOf(this.file) === 'points' && this.canStop(node)
  }

  private isElement(node: ts.Node): node is ts.ElementAccessExpression {
    if (!ts.isElementAccessExpression(node) || this.colours.partOf(this.file) === 'atomic') return false
    return node.questionDotToken === undefined && this.colours.isTypedArray(node.expression)
  }

  private element(node: ts.ElementAccessExpression): string | null {
    if (!this.isElement(node)) return null
    const operands = `${this.text(node.expression)}, ${this.text(node.argumentExpression)}`
    return this.isPoint(node) ? `($.at(${this.place(node)}, ${operands}) && (yield), $.read())` : `$.load(${operands})`
  }

  private assignment(node: ts.BinaryExpression): string | null {
    const { left, right, operatorToken } = node
    const { kind } = operatorToken
    if (kind === ts.SyntaxKind.EqualsToken && ts.isObjectLiteralExpression(left)) return this.pattern(node, left)
    if (!this.isElement(left)) return null
    const operands = `${this.text(left.expression)}, ${this.text(left.argumentExpression)}`
    if (kind === ts.SyntaxKind.EqualsToken) {
      const all = `${operands}, ${this.text(right)}`
      return this.isPoint(node) ? `($.to(${this.place(node)}, ${all}) && (yield), $.write())` : `$.store(${all})`
    }
    const operator = ASSIGNMENTS.get(kind)
    return operator === undefined ? null : this.update(node, operands, `${operator} (${this.text(right)})`, false)
  }

  private step(node: ts.PrefixUnaryExpression | ts.PostfixUnaryExpression): string | null {
    const { operator, operand } = node
    const isStep = operator === ts.SyntaxKind.PlusPlusToken || operator === ts.SyntaxKind.MinusMinusToken
    if (!isStep || !this.isElement(operand)) return null
    const operands = `${this.text(operand.expression)}, ${this.text(operand.argumentExpression)}`
    const change = operator === ts.SyntaxKind.PlusPlusToken ? '+ 1' : '- 1'
    return this.update(node, operands, change, ts.isPostfixUnaryExpression(node))
  }

  /** A load and a store of one element, two accesses; the value is the old one or the new one. */
  private update(node: ts.Node, operands: string, change: string, isOld: boolean): string {
    const [place, isPoint] = [this.place(node), this.isPoint(node)]
    const stop = isPoint ? ' && (yield)' : ''
    const [begin, changed] = [
      `$.at(${place}, ${operands}, ${isPoint})`,
      `$.change($.old() ${change}, ${isOld}, ${isPoint})`,
    ]
    return `(${begin}${stop}, ${changed}${stop}, $.end())`
  }

  private call(node: ts.CallExpression): string | null {
    if (isAtomics(node)) return this.atomic(node)
    if (node.expression.kind === ts.SyntaxKind.SuperKeyword) return null // see rewrite-class.ts
    if (node.getText(this.file) === 'performance.now()') return '$.now()'
    if (this.colours.isArrayCall(node)) {
      const { expression, name } = node.expression as ts.PropertyAccessExpression
      const rest = node.arguments.map(each => this.text(each))
      const list = name.text === 'from' ? rest : [this.text(expression), ...rest]
      return this.run(node, `$.arrays.${name.text}(${list.join(', ')})`)
    }
    const { expression } = node
    if (ts.isPropertyAccessExpression(expression) && this.colours.isTypedArray(expression.expression)) {
      const bulk = `$.bulk(${this.text(expression.expression)})`
      return this.spliced(node, new Map([[expression, `${bulk}.${expression.name.text}`]]), node.getStart(this.file))
    }
    if (this.colours.isStep(node)) return this.run(node, `$.next(${this.text(node.expression.expression)})`)
    if (!this.colours.mayStop(node)) return null
    const plain = this.spliced(node, new Map(), node.getStart(this.file))
    if (!this.isIterator(node)) return this.run(node, plain)
    const isTaken = ts.isForOfStatement(node.parent) || (ts.isYieldExpression(node.parent) && node.parent.asteriskToken)
    return isTaken || this.colours.isStepped(node) ? plain : this.run(node, `$.collect(${plain})`)
  }

  private atomic(node: ts.CallExpression): string {
    const name = (node.expression as ts.PropertyAccessExpression).name.text
    const args = node.arguments.map(each => this.text(each)).join(', ')
    if (name === 'wait') return this.canStop(node) ? `(yield* $.wait(${args}))` : `$.drive($.wait(${args}))`
    const code = `$.atomic(${this.place(node)}, '${name}', ${args})`
    return this.canStop(node) ? `(${code} && (yield), $.done())` : `(${code}, $.done())`
  }

  /** Runs what an expression returns, if it is a generator of ours. */
  private run(node: ts.Node, code: string): string {
    return this.canStop(node) ? `($.is($.value = ${code}) ? yield* $.value : $.value)` : `$.drive(${code})`
  }

  private construction(node: ts.NewExpression): string | null {
    const { declarations } = this.colours.targetsOf(node)
    if (!declarations.some(each => this.colours.has(each))) return null
    const args = (node.arguments ?? []).map(each => this.text(each))
    return this.run(node, `$.construct(${[this.text(node.expression), ...args].join(', ')})`)
  }

  private property(node: ts.PropertyAccessExpression): string | null {
    if (node.getText(this.file) === 'process.arch') return '$.arch'
    if (!this.isGetter(node) || isTarget(node)) return null
    const object = this.text(node.expression)
    if (object.trim() === 'super') return null
    const optional = node.questionDotToken !== undefined
    return this.run(node, `$.get(${object}, '${node.name.text}'${optional ? ', true' : ''})`)
  }

  private isGetter(node: ts.PropertyAccessExpression): boolean {
    const { declarations } = this.colours.targetsOf(node)
    return declarations.some(each => !ts.isMethodDeclaration(each) && this.colours.has(each))
  }

  /** `const { a, b } = c` where something among it is a getter that may stop. */
  private declaration(node: ts.VariableDeclaration): string | null {
    if (!ts.isObjectBindingPattern(node.name) || node.initializer === undefined) return null
    const names = this.gettersIn(node.name.elements, node.initializer)
    if (names.size === 0 || !this.canStop(node)) return null
    const whole = `$all${this.names++}`
    const parts = node.name.elements.map(element => {
      const name = (element.propertyName ?? element.name).getText(this.file)
      if (element.dotDotDotToken !== undefined || !ts.isIdentifier(element.name)) return this.give(element)
      const value = names.has(name) ? this.run(node, `$.get(${whole}, '${name}')`) : `${whole}.${name}`
      return `${element.name.text} = ${value}`
    })
    return [`${whole} = ${this.text(node.initializer)}`, ...parts].join(', ')
  }

  /** `{ a } = b` of such a getter. */
  private pattern(node: ts.BinaryExpression, left: ts.ObjectLiteralExpression): string | null {
    const names = this.gettersIn(left.properties, node.right)
    if (names.size === 0 || !this.canStop(node)) return null
    const parts = left.properties.map(each => {
      if (!ts.isShorthandPropertyAssignment(each)) return this.give(each)
      return `${each.name.text} = ${this.run(node, `$.get(${this.text(node.right)}, '${each.name.text}')`)}`
    })
    return `(${parts.join(', ')})`
  }

  private gettersIn(elements: readonly ts.Node[], from: ts.Expression): Set<string> {
    const type = this.colours.checker.getTypeAtLocation(from)
    const names = elements.map(each => {
      const { propertyName, name } = each as ts.BindingElement
      return (propertyName ?? name).getText(this.file)
    })
    const isGetter = (name: string) =>
      type.getProperty(name)?.declarations?.some(each => ts.isGetAccessor(each) && this.colours.has(each)) ?? false
    return new Set(names.filter(isGetter))
  }

  private isIterator(node: ts.Node): boolean {
    const { declarations } = this.colours.targetsOf(node)
    return declarations.some(each => isGenerator(each) && this.colours.has(each))
  }

  private forOf(node: ts.ForOfStatement): string | null {
    const { initializer, expression, statement } = node
    if (!this.isIterator(expression) || !ts.isVariableDeclarationList(initializer)) return null
    const [all, one] = [`$all${this.names++}`, `$one${this.names++}`]
    const next = this.canStop(node) ? `yield* $.next(${all})` : `$.drive($.next(${all}))`
    const element = initializer.declarations[0].name.getText(this.file)
    const body = `{ const ${element} = ${one}.value; ${this.text(statement)} }`
    return `for (let ${one}, ${all} = ${this.text(expression)}; !(${one} = ${next}).done;) ${body}`
  }

  private yielded(node: ts.YieldExpression): string | null {
    if (!this.canStop(node) || node.expression === undefined || node.asteriskToken !== undefined) return null
    return `(yield $.box(${this.text(node.expression)}))`
  }

  private functionOf(node: ts.FunctionLikeDeclaration): string | null {
    if (!this.colours.has(node) || isGenerator(node)) return null
    const body = node.body!
    if (ts.isArrowFunction(node)) {
      const inner = this.text(body)
      const block = ts.isBlock(body) ? inner : `{ return (${inner}) }`
      return `$.bound(this, function* (${node.parameters.map(each => this.text(each)).join(', ')}) ${block})`
    }
    if (ts.isFunctionExpression(node) || ts.isFunctionDeclaration(node)) {
      return this.spliced(node, new Map(), node.getStart(this.file)).replace(/\bfunction\b/, 'function*')
    }
    const { name } = node
    if (name === undefined) return null
    if (!ts.isGetAccessor(node)) {
      const method = this.spliced(node, new Map([[name, ` *${name.getText()}`]]), startOf(node))
      // After a field without a semicolon the star would multiply.
      return ts.isClassLike(node.parent) ? `;${method}` : method
    }
    const isStatic = hasModifier(node, ts.SyntaxKind.StaticKeyword) ? 'static ' : ''
    const plain = `${isStatic}get ${name.getText()}() { return $.drive(this.${name.getText()}$get()) }`
    const comma = ts.isObjectLiteralExpression(node.parent) ? ',' : ''
    return `${isStatic}*${name.getText()}$get() ${this.text(body)}${comma}\n${plain}`
  }

  /** Tells accesses of different places apart, and is for a trace. */
  private place(node: ts.Node): string {
    const [line] = node.getText(this.file).split('\n')
    return JSON.stringify(`${positionOf(node)} ${line}`)
  }

  private give(node: ts.Node): never {
    throw new Error(`${positionOf(node)}: a pattern with a getter that may stop; name its parts one by one`)
  }
}

function isGenerator(node: ts.Node): boolean {
  return (ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node)) && node.asteriskToken !== undefined
}

function startOf(node: ts.Node): number {
  return node.getStart(node.getSourceFile())
}

function isTarget(node: ts.Node): boolean {
  const { parent } = node
  if (ts.isBinaryExpression(parent) && parent.left === node) {
    const { kind } = parent.operatorToken
    return kind >= ts.SyntaxKind.FirstAssignment && kind <= ts.SyntaxKind.LastAssignment
  }
  return (ts.isPrefixUnaryExpression(parent) || ts.isPostfixUnaryExpression(parent)) && node.getText() !== ''
    ? parent.operator === ts.SyntaxKind.PlusPlusToken || parent.operator === ts.SyntaxKind.MinusMinusToken
    : false
}
