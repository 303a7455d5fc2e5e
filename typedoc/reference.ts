// The reference: modules by the names that programs import, classes as such, and texts of exports that need no
// docstring of their own.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  type Application,
  Comment,
  CommentTag,
  type Context,
  Converter,
  type DeclarationReflection,
  type ProjectReflection,
  ReferenceType,
  ReflectionKind,
} from 'typedoc'
import { PROJECT } from './project.js'

import ts = require('typescript')

/** The group of the modules, and of the page that lists all names. */
export const REFERENCE = 'Reference'

export function describeReference(app: Application): void {
  app.converter.on(Converter.EVENT_CREATE_DECLARATION, nameModule)
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, context => {
    showClasses(context)
    describeKnown(context.project)
  })
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => hideInternals(project))
}

/** Names a module as programs import it, and says what it is for. */
function nameModule(_: Context, module: DeclarationReflection): void {
  if (module.kind !== ReflectionKind.Module) return
  const entry = module.name.replace('entries/', '')
  module.name = entry === 'index' ? 'cuda-mempool' : `cuda-mempool/${entry}`
  const text = contents().get(entry) ?? 'devices, pools, streams, kernels and errors: what most programs need'
  module.comment = new Comment([{ kind: 'text', text: `${text[0].toUpperCase()}${text.slice(1)}.` }])
  module.comment.blockTags.push(new CommentTag('@group', [{ kind: 'text', text: REFERENCE }]))
}

/** The purpose of each entry point, as the page of the entry points says. */
function contents(): Map<string, string> {
  const page = readFileSync(join(PROJECT, 'src', 'entries', 'README.md'), 'utf8')
  return new Map([...page.matchAll(/^\| `(\w+)\.ts` +\| (.*?) +\|$/gm)].map(([, name, text]) => [name, text]))
}

/** TypeDoc calls a class an interface where only its type is exported, since programs cannot call its constructor. */
function showClasses(context: Context): void {
  for (const shape of context.project.getReflectionsByKind(ReflectionKind.Interface)) {
    const flags = context.getSymbolFromReflection(shape)?.flags ?? 0
    if ((flags & ts.SymbolFlags.Class) !== 0) shape.kind = ReflectionKind.Class
  }
}

/** Leaves out interfaces that are not exported: no program can name them. */
function hideInternals(project: ProjectReflection): void {
  for (const shape of project.getReflectionsByKind(ReflectionKind.Class) as DeclarationReflection[]) {
    const named = shape.implementedTypes?.filter(
      type => !(type instanceof ReferenceType) || type.reflection !== undefined,
    )
    if (named === undefined || named.length === 0) delete shape.implementedTypes
    else shape.implementedTypes = named
  }
}

/** CUDA's manual documents the functions of the driver, and the class says an error's name. */
function describeKnown(project: ProjectReflection): void {
  const say = (reflection: { comment?: Comment; hasComment(): boolean }, text: string) => {
    if (!reflection.hasComment()) reflection.comment = new Comment([{ kind: 'text', text }])
  }
  for (const signature of project.getReflectionsByKind(ReflectionKind.CallSignature)) {
    if (/^cu[A-Z]/.test(signature.name)) say(signature, 'The function of the CUDA driver with this name.')
  }
  for (const property of project.getReflectionsByKind(ReflectionKind.Property)) {
    if (property.name === 'name' && property.parent?.name.endsWith('Error')) say(property, 'The name of the class.')
  }
}
