// Which regions and files the code that runs is filling. It must not wait for these: it would wait for itself.

import { AsyncLocalStorage } from 'node:async_hooks'

/** The code that fills a region or file; it may fill others within. */
interface Scope {
  readonly name: string
  readonly outer: Scope | undefined
  isOver: boolean
}

export class FillScopes {
  private readonly scopes = new AsyncLocalStorage<Scope>()

  /** Runs the code that fills a region or file. */
  async run(name: string, fill: () => void | Promise<void>): Promise<void> {
    const scope = { name, outer: this.scopes.getStore(), isOver: false }
    try {
      await this.scopes.run(scope, async () => await fill())
    } finally {
      scope.isOver = true
    }
  }

  /** Whether the code that runs fills a region or file of that name; work that outlives its fill does not. */
  includes(name: string): boolean {
    for (let scope = this.scopes.getStore(); scope !== undefined; scope = scope.outer) {
      if (scope.name === name && !scope.isOver) return true
    }
    return false
  }
}
