// The texts and figures of a page beside its pictures, as JSON in the page.

import type { ChangeIcicle } from './change-icicle.js'

/** A policy's figures. */
export interface PagePolicy {
  readonly policy: string
  readonly label: string
  /** most bytes from the device at once; null if unknown */
  readonly peakBytes: number | null
  /** its figures, one for each of `PageRecording.columns` */
  readonly cells: readonly string[]
}

/** A failed request, in words. */
export interface PageFailure {
  readonly event: number
  readonly title: string
  readonly verdict: string
  readonly facts: readonly (readonly [name: string, text: string])[]
  readonly askedBytes: number
  /** sizes of the idle pieces, the largest first; few enough for a bar */
  readonly pieces: readonly number[]
  readonly holders: PageHeld['rows']
}

/** Places that hold memory, most first. */
export interface PageHeld {
  readonly title: string
  readonly rows: readonly { readonly bytes: number; readonly text: string }[]
}

/** A sentence of the advice, or a line for the shell to copy. */
export interface PageAdvice {
  readonly text: string
  readonly isSetting: boolean
}

/** Settings that would have helped, as a table. */
export interface PageRemedies {
  readonly columns: readonly string[]
  /** the best first, with a cell for each column */
  readonly rows: readonly {
    /** the line to copy */
    readonly line: string
    readonly cells: readonly string[]
    /** the price of it; may be empty */
    readonly note: string
  }[]
}

/** One recording of a page: a device of a file. */
export interface PageRecording {
  /** its name among several */
  readonly tab: string
  readonly file: string
  readonly device: string
  /** the answer, the worst first */
  readonly verdict: readonly string[]
  /** the holders of the peak; null if they are not known, or the same as at the last failed request */
  readonly held: PageHeld | null
  readonly facts: string
  readonly notes: readonly string[]
  /** the figures of the policies */
  readonly columns: readonly { readonly title: string; readonly tip: string }[]
  readonly policies: readonly PagePolicy[]
  /** most in use at once */
  readonly inUseBytes: number
  /** no policy can do with less: the most in use, and the requests that failed if the policies had to serve them */
  readonly leastBytes: number
  readonly failures: readonly PageFailure[]
  /** sentences about the rest of the device's memory, and whether anything of it is known */
  readonly outside: { readonly isKnown: boolean; readonly lines: readonly string[] }
  readonly advice: readonly PageAdvice[]
  /** null for none */
  readonly remedies: PageRemedies | null
}

/** The changes from the first recording to the second. */
export interface PageDifference {
  readonly names: readonly [string, string]
  readonly lines: readonly string[]
  /** of A and of B: the most bytes in use in each of equal parts of the recording */
  readonly curves: readonly [readonly number[], readonly number[]]
  /** by call site, the greatest change first */
  readonly rows: readonly {
    readonly text: string
    /** at the peak of A, and of B */
    readonly bytes: readonly [number, number]
  }[]
  /** call sites that are left out */
  readonly more: number
  /** all of them */
  readonly icicle: ChangeIcicle
}

/** Several recordings beside each other, such as one of each rank. */
export interface PageRanks {
  /** sentences about the recording that differs most, or a sentence for alike ones */
  readonly lines: readonly string[]
  /** the index of the recording that differs most; null for alike ones */
  readonly first: number | null
  /** the indices of all: `first`, then by most memory */
  readonly order: readonly number[]
  /** by recording: the most bytes in use in each of equal parts of it */
  readonly curves: readonly (readonly number[])[]
}

/** The JSON of a page. */
export interface PageData {
  readonly version: 1
  readonly recordings: readonly PageRecording[]
  /** left out, the recordings are not compared */
  readonly difference?: PageDifference
  /** left out of one recording, and of two whose difference is shown */
  readonly ranks?: PageRanks
}
