// The requests about graph groups that a thread sends to the pool server.

import type { GroupConfig } from '../../caching/captures/graph-groups.js'
import type { BlockUse } from '../../caching/captures/group-store.js'

export type GroupQuestion =
  | { readonly ask: 'groupCreate'; readonly config: GroupConfig }
  /** in the name of a call */
  | (OfGroup<'groupBegin'> & { readonly call: string })
  | OfGroup<'groupCheck' | 'groupTrim' | 'groupFigures' | 'groupClose'>
  | (OfGroup<'groupTake'> & TakeQuestion)
  /** null: later captures alone use the block again */
  | (OfGroup<'groupFree'> & { readonly record: number; readonly after: CapturedUse | null })
  | (OfGroup<'groupEnd'> & { readonly graph: number; readonly hasGraph: boolean })
  | (OfGroup<'groupReserve'> & { readonly bytes: number })
  /** those behind an address */
  | (OfGroup<'groupIdle'> & { readonly after: number })

interface OfGroup<Ask extends string> {
  readonly ask: Ask
  /** the number of the group */
  readonly group: number
}

/** Captured work that has used a block. Work of the capture that comes after it may use the block again. */
export interface CapturedUse {
  readonly slot: number
  readonly stamp: number
}

export interface TakeQuestion {
  readonly units: number
  readonly alignUnits: number
  readonly slot: number
  readonly stamp: number
  /** the slots whose captured work comes before, each with the latest stamp that does */
  readonly known: readonly number[]
  readonly use: BlockUse
}

/** A block that was taken. */
export interface TakenBlock {
  readonly record: number
  readonly address: number
}

/** The answer to a request for a block. */
export interface TakeAnswer {
  /** null without memory */
  readonly block: TakenBlock | null
  /** whether the limit of the group has refused it */
  readonly isFull: boolean
}

/** Whether a request for scratch was served, and else whether the limit of the group has refused it. */
export interface ReserveAnswer {
  readonly isDone: boolean
  readonly isFull: boolean
}

/** The place of a group in the table, and its number. */
export interface GroupName {
  readonly place: number
  readonly group: number
}

/** The calls of a program that ask about groups. */
export const GROUP_CALLS: Readonly<Record<GroupQuestion['ask'], string>> = {
  groupCreate: 'createGraphGroup',
  groupBegin: 'beginCapture',
  groupCheck: 'endCapture',
  groupEnd: 'endCapture',
  groupTake: 'allocate',
  groupFree: 'free',
  groupReserve: 'reserve',
  groupTrim: 'trim',
  groupFigures: 'stats',
  groupIdle: 'launch',
  groupClose: 'close',
}

/** Undoes what an answer has granted that the call which asked has not seen; null for nothing. */
export function undoing(question: { readonly ask: string }, answer: unknown): GroupQuestion | null {
  if (answer === null) return null
  const asked = question as GroupQuestion
  switch (asked.ask) {
    case 'groupCreate':
      return { ask: 'groupClose', group: (answer as GroupName).group }
    case 'groupBegin':
      return { ask: 'groupEnd', group: asked.group, graph: answer as number, hasGraph: false }
    case 'groupTake': {
      const { block } = answer as TakeAnswer
      if (block === null) return null
      return { ask: 'groupFree', group: asked.group, record: block.record, after: null }
    }
    default:
      return null
  }
}
