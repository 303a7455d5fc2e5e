// The NUMA node of pinned memory: a program names it, or it is the device's own. Copies of other nodes' memory cross
// the link between the processors.

import { OutOfRangeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { CudaError } from '../base/errors.js'
import type { Context } from './context.js'

/** Memory may lie on every node: the host has no nodes, or driver or system do not support binding. */
export const ANY_NODE = -1
const TRIED_BYTES = 256 * 1024

/** by context: its own node, or ANY_NODE */
const ownNodes = new WeakMap<Context, number>()
let hasRefused = false
let hasWarned = false

/** The node that is nearest to the device, if memory can be bound to it; else ANY_NODE. */
export function ownNode(context: Context): number {
  const known = ownNodes.get(context)
  if (known !== undefined) return known
  const node = nearest(context)
  if (node === null) return ANY_NODE
  const bindable = context.driver.hostNodes().includes(node) ? ifBindable(context, node) : ANY_NODE
  ownNodes.set(context, bindable)
  return bindable
}

/**
 * `wanted`, if memory can be bound to it, and else ANY_NODE; without `wanted` as `ownNode`. A warning says once that
 * the system refuses. Throws RangeError for anything but a node of this host.
 */
export function nodeOf(context: Context, wanted: number | undefined): number {
  const node = wanted === undefined ? ownNode(context) : named(context, wanted)
  if (node === ANY_NODE && hasRefused && !hasWarned) {
    hasWarned = true
    process.emitWarning(
      'the system does not let this process bind memory to a NUMA node, so pinned memory lies on any node; ' +
        'in a container, add the capability SYS_NICE',
      'PoolWarning',
    )
  }
  return node
}

function named(context: Context, wanted: number): number {
  const nodes = context.driver.hostNodes()
  if (nodes.includes(wanted)) return ifBindable(context, wanted)
  const nodesText = nodes.length === 0 ? 'which has none' : `which has ${nodes.join(', ')}`
  throw new OutOfRangeError(
    `numaNode must be a NUMA node of this host, ${nodesText}, not ${describe(wanted)}; ` +
      "leave it out for the device's own node",
  )
}

/** The driver's answer; null after a refusal. */
function nearest(context: Context): number | null {
  try {
    return context.attribute('CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID')
  } catch (error) {
    if (error instanceof CudaError) return null // drivers before 12.2 do not know the attribute
    throw error
  }
}

/** Tries it with memory of its own. */
function ifBindable({ driver }: Context, node: number): number {
  const tried = new Uint8Array(TRIED_BYTES)
  hasRefused = !driver.placeHost(tried, node)
  driver.unplaceHost(tried)
  return hasRefused ? ANY_NODE : node
}
