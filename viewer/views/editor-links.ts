// Lines of call stacks as links to an editor, if the reader wants them.

import { element } from '../elements.js'
import type { StackLine } from '../protocol.js'

const STORED = 'cuda-mempool-editor-links'

/** Whether lines are links: a choice of the reader for all pages, off at first. */
export function hasEditorLinks(): boolean {
  try {
    return localStorage.getItem(STORED) === 'on'
  } catch {
    return false // some browsers have no storage for files
  }
}

/** The choice as a box to tick; `changed` is called after a change. */
export function editorChoice(changed: () => void): HTMLElement {
  const box = element('input', { type: 'checkbox' })
  box.checked = hasEditorLinks()
  box.addEventListener('change', () => {
    try {
      localStorage.setItem(STORED, box.checked ? 'on' : 'off')
    } catch {
      box.checked = false
    }
    changed()
  })
  return element('label', {}, box, ' lines open in VS Code')
}

/** The lines of a stack. Only files with a whole path are links: an editor knows no other. */
export function stackList(stack: readonly StackLine[]): HTMLElement {
  const isLinked = hasEditorLinks()
  const lines = stack.map(({ text, path }) =>
    element('li', {}, isLinked && path !== null ? element('a', { href: editorUrl(path) }, text) : text),
  )
  return element('ol', { class: 'stack' }, ...lines)
}

function editorUrl(path: string): string {
  const plain = path.replaceAll('\\', '/')
  return `vscode://file${plain.startsWith('/') ? '' : '/'}${encodeURI(plain).replace(/[?#]/g, encodeURIComponent)}`
}
