// The service manager that has started this process, as systemd does: its notify socket, and the descriptors that it
// passes, a listening socket and those that a keeper before has stored. Only its variables tell that it is there.

import { fstatSync } from 'node:fs'
import { closeDescriptor } from '../../libraries/system-calls.js'
import { DescriptorStore } from './descriptor-store.js'
import { Notifications } from './notifications.js'

const FIRST_DESCRIPTOR = 3
const VARIABLES = ['NOTIFY_SOCKET', 'FDSTORE', 'LISTEN_PID', 'LISTEN_PIDFDID', 'LISTEN_FDS', 'LISTEN_FDNAMES']

export interface ServiceManager {
  readonly notifications: Notifications | null
  /** descriptor of a socket for this process to listen at */
  readonly listener: number | null
  readonly store: DescriptorStore | null
  /** the most descriptors that it stores besides the state */
  readonly room: number
}

/**
 * Takes what the service manager has passed, once: the variables are for this process alone, and are removed. Throws
 * KeepError if it has stored the state of a later version.
 */
export function serviceManager(env: NodeJS.ProcessEnv = process.env): ServiceManager {
  const [address, room] = [env['NOTIFY_SOCKET'], Number(env['FDSTORE'] ?? 0)]
  const { listener, stored } = passed(env)
  for (const name of VARIABLES) delete env[name]
  const notifications = address === undefined ? null : Notifications.to(address)
  // systemd tells in FDSTORE how many it stores, from version 254 on.
  const isStoring = notifications !== null && room > 1
  const store = isStoring ? DescriptorStore.open(notifications, stored) : null
  if (store === null) for (const descriptor of stored.values()) closeDescriptor(descriptor)
  return { notifications, listener, store, room: isStoring ? room - 1 : Number.POSITIVE_INFINITY }
}

function passed(env: NodeJS.ProcessEnv): { readonly listener: number | null; readonly stored: Map<string, number> } {
  const stored = new Map<string, number>()
  const count = env['LISTEN_PID'] === String(process.pid) ? Number(env['LISTEN_FDS'] ?? 0) : 0
  const names = (env['LISTEN_FDNAMES'] ?? '').split(':')
  let listener: number | null = null
  for (let index = 0; index < count; index++) {
    const descriptor = FIRST_DESCRIPTOR + index
    const name = names[index] ?? ''
    if (listener === null && fstatSync(descriptor).isSocket()) listener = descriptor
    else if (stored.has(name)) closeDescriptor(descriptor)
    else stored.set(name, descriptor)
  }
  return { listener, stored }
}
