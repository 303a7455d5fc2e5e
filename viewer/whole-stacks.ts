import type { Plugin } from 'esbuild'

/** Leaves out `src/core/base/call-stack.ts`. A page is one file with all code in it, so stacks keep all frames. */
export const WHOLE_STACKS: Plugin = {
  name: 'whole stacks',
  setup({ onLoad }) {
    onLoad({ filter: /\/call-stack\.ts$/ }, () => ({ contents: 'export function beginAtProgram() {}' }))
  },
}
