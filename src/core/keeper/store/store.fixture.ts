// A keeper that a service manager starts, in a test.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { type Actor, Clients, socketFolderOf } from '../keeper.fixture.js'
import { TestManager } from './service-manager.fixture.js'

export class TestStore {
  private readonly place = socketFolderOf()
  readonly path = this.place.path
  readonly clients = new Clients(this.path)
  readonly keepers: Actor[] = []
  /** of the latest `begin` */
  manager!: TestManager

  /** Lets a new manager start keepers. */
  begin(): void {
    this.manager = new TestManager(join(this.place.folder, 'notify'), this.path)
  }

  readonly start = async (...args: readonly string[]): Promise<Actor> => {
    const keeper = this.manager.start(...args)
    this.keepers.push(keeper)
    assert.equal(await keeper.line(), 'listens')
    return keeper
  }

  readonly connect = () => this.clients.connect()

  /** Ends all keepers and clients, and the manager. */
  async end(): Promise<void> {
    this.clients.close()
    for (const each of this.keepers.splice(0)) await each.kill()
    await this.manager.close()
  }

  remove(): void {
    this.place.remove()
  }
}
