// The check of traces that public functions are given.

import { describe } from '../base/bytes.js'
import type { Trace } from './trace.js'

/** Throws TypeError in the name of `call` unless `trace` is a Trace. */
export function checkTrace(call: string, trace: unknown): asserts trace is Trace {
  const isTrace = typeof trace === 'object' && trace !== null && 'blocks' in trace && 'action' in trace
  if (!isTrace) throw notTrace(call, trace)
}

/** The error for an argument `trace` of `call` that is no Trace. */
export function notTrace(call: string, trace: unknown): TypeError {
  const hint = typeof trace === 'string' ? '; readRecording(path) reads a file' : ''
  return new TypeError(`${call}: trace must be a Trace of readRecording or recorded, not ${describe(trace)}${hint}`)
}
