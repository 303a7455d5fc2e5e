// A class whose construction may stop: it has a generator `$init` instead of its constructor, which the runtime calls
// on an object of the class (`$.construct`). Parameters that are properties, and fields, are assigned there.

import ts from 'typescript'
import { hasModifier } from './colours.js'

export interface Texts {
  /** the text of a node, rewritten */
  text(node: ts.Node): string
  /** the same with some parts replaced by what is given for them */
  spliced(node: ts.Node, parts: ReadonlyMap<ts.Node, string>, from: number): string
}

export function rewriteClass(node: ts.ClassDeclaration, texts: Texts): string {
  const fields = node.members.filter(each => ts.isPropertyDeclaration(each)).filter(isOwn)
  const constructors = node.members.filter(each => ts.isConstructorDeclaration(each))
  const parts = new Map<ts.Node, string>([...fields, ...constructors].map(each => [each, '']))
  const whole = texts.spliced(node, parts, node.getStart())
  const written = constructors.find(({ body }) => body !== undefined)
  return `${whole.slice(0, whole.lastIndexOf('}'))}\n${initOf(node, written, fields, texts)}\n}`
}

function initOf(
  node: ts.ClassDeclaration,
  written: ts.ConstructorDeclaration | undefined,
  fields: readonly ts.PropertyDeclaration[],
  texts: Texts,
): string {
  const isDerived = node.heritageClauses?.some(each => each.token === ts.SyntaxKind.ExtendsKeyword) ?? false
  const own = (written?.parameters ?? []).filter(each => (ts.getModifiers(each)?.length ?? 0) > 0)
  const assigned = own.map(({ name }) => `this.${name.getText()} = ${name.getText()}`)
  for (const { name, initializer } of fields) {
    if (initializer !== undefined) assigned.push(`this.${name.getText()} = ${texts.text(initializer)}`)
  }
  const parameters = (written?.parameters ?? []).map(({ name, initializer, dotDotDotToken }) => {
    const value = initializer === undefined ? '' : ` = ${texts.text(initializer)}`
    return `${dotDotDotToken === undefined ? '' : '...'}${name.getText()}${value}`
  })
  const lines: string[] = []
  if (!isDerived) lines.push(...assigned)
  else if (written === undefined) lines.push('yield* super.$init(...arguments)', ...assigned)
  for (const statement of written?.body?.statements ?? []) {
    const call = superCall(statement)
    if (call === null) lines.push(texts.text(statement))
    else lines.push(`yield* super.$init(${call.arguments.map(each => texts.text(each)).join(', ')})`, ...assigned)
  }
  return `*$init(${parameters.join(', ')}) {\n${lines.join('\n;')}\n}`
}

function superCall(statement: ts.Statement): ts.CallExpression | null {
  if (!ts.isExpressionStatement(statement) || !ts.isCallExpression(statement.expression)) return null
  const { expression } = statement
  return expression.expression.kind === ts.SyntaxKind.SuperKeyword ? expression : null
}

function isOwn(field: ts.PropertyDeclaration): boolean {
  return !hasModifier(field, ts.SyntaxKind.StaticKeyword)
}
