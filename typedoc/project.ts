// Where the project lies, and where a file of the site came from.

import { dirname, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Reflection } from 'typedoc'

export const PROJECT = join(dirname(fileURLToPath(import.meta.url)), '..', '..')

/** The file that a document was made of, below the project. */
export function sourceOf(document: Reflection): string {
  return fromProject(document.project.files.getReflectionPath(document) ?? PROJECT)
}

/** A path below the project, with slashes. */
export function fromProject(path: string): string {
  return relative(PROJECT, path).split(sep).join('/')
}
