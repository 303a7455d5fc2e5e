// Figures of a program, from its line of JSON and its file of durations.

import { readFileSync } from 'node:fs'
import { median } from '../machine.js'
import { type Operations, segmentsOf } from './operations.js'

/** A part of a pass, or the rest after its last part. */
export interface Segment {
  /** of all calls, by the clock before and after */
  readonly ns: number
  /** since the program began; null if the allocator does not tell, and in runs that do not read the clock each call */
  readonly peakReservedBytes: number | null
  /** by function; null in runs that do not read the clock after each call */
  readonly driverCalls: Readonly<Record<string, number>> | null
}

/** The JSON that each program prints. */
export interface ProgramResult {
  /** nanoseconds of a reading of its clock */
  readonly clockNs: number
  /** the segments of each pass */
  readonly passes: Segment[][]
}

/** A part of a mix, or a pass of a recording. */
export interface PartFigures {
  /** of all calls together, from the run without a clock between them */
  readonly ns: number
  /** nanoseconds of single calls, allocations and frees, with a reading of the clock */
  readonly p50: number
  readonly p99: number
  readonly p999: number
  readonly longest: number
  readonly peakReservedBytes: number | null
  readonly driverCalls: number
}

/** A program's figures for one file of operations. */
export interface Figures {
  readonly clockNs: number
  /** of all calls of all passes, from the run without a clock between them */
  readonly ns: number
  readonly parts: readonly PartFigures[]
  /** driver calls of all passes by function */
  readonly driverCalls: Readonly<Record<string, number>>
}

/** The line of JSON that a program printed. Throws Error for other text. */
export function parseResult(stdout: string): ProgramResult {
  const line = stdout.trim().split('\n').at(-1) ?? ''
  try {
    return JSON.parse(line) as ProgramResult
  } catch {
    throw new Error(`it printed no result: ${line.slice(0, 200) || '(nothing)'}`)
  }
}

/** The figures of two runs of one program: one that wrote the duration of each call, and one that did not. */
export function figuresOf(operations: Operations, timed: ProgramResult, plain: ProgramResult, path: string): Figures {
  const file = readFileSync(path)
  const durations = new Float64Array(file.buffer.slice(file.byteOffset, file.byteOffset + file.length))
  const count = operations.buffer.length
  const segments = segmentsOf(operations)
  const driverCalls: Record<string, number> = {}
  for (const segment of timed.passes.flat()) {
    for (const [name, calls] of Object.entries(segment.driverCalls ?? {})) {
      driverCalls[name] = (driverCalls[name] ?? 0) + calls
    }
  }
  return {
    clockNs: timed.clockNs,
    ns: sum(plain.passes.flat().map(({ ns }) => ns)),
    driverCalls,
    parts: timed.passes.flatMap((pass, index) =>
      operations.partEnds.map((_, part) => {
        const [from, to] = segments[part]
        const { peakReservedBytes, driverCalls: calls } = pass[part]
        return {
          ns: plain.passes[index][part].ns,
          ...percentiles(durations.slice(index * count + from, index * count + to)),
          peakReservedBytes,
          driverCalls: sum(Object.values(calls ?? {})),
        }
      }),
    ),
  }
}

/** The median of each figure over several rounds. */
export function medianFigures(rounds: readonly Figures[]): Figures {
  const middle = (of: (figures: Figures) => number) => median(rounds.map(of))
  const [first] = rounds
  return {
    clockNs: middle(figures => figures.clockNs),
    ns: middle(figures => figures.ns),
    driverCalls: Object.fromEntries(
      Object.keys(first.driverCalls).map(name => [name, middle(figures => figures.driverCalls[name] ?? 0)]),
    ),
    parts: first.parts.map(({ peakReservedBytes }, part) => {
      const of = (key: keyof PartFigures) => middle(figures => figures.parts[part][key] ?? 0)
      return {
        ns: of('ns'),
        p50: of('p50'),
        p99: of('p99'),
        p999: of('p999'),
        longest: of('longest'),
        peakReservedBytes: peakReservedBytes === null ? null : of('peakReservedBytes'),
        driverCalls: of('driverCalls'),
      }
    }),
  }
}

function percentiles(durations: Float64Array): Pick<PartFigures, 'p50' | 'p99' | 'p999' | 'longest'> {
  durations.sort()
  const at = (share: number) => durations[Math.max(0, Math.ceil(share * durations.length) - 1)]
  return { p50: at(0.5), p99: at(0.99), p999: at(0.999), longest: at(1) }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
