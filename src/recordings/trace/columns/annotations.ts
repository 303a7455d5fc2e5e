// Annotations of a recording: its file has a mark for each start and each end, with a time and no event.

import type { Annotation } from '../trace.js'

/** The start or the end of an annotation. */
export interface AnnotationMark {
  readonly isStart: boolean
  readonly name: string
  readonly timeUs: number
}

/** The marks of an annotation, without those that the recording does not have. */
export function marksOf({ name, startUs, endUs }: Pick<Annotation, 'name' | 'startUs' | 'endUs'>): AnnotationMark[] {
  const marks = [
    { isStart: true, name, timeUs: startUs },
    { isStart: false, name, timeUs: endUs },
  ]
  return marks.filter(({ timeUs }) => !Number.isNaN(timeUs))
}

/** An annotation whose end is not found yet. */
interface OpenAnnotation {
  readonly name: string
  readonly startUs: number
  readonly start: number
  endUs: number
  end: number
}

/**
 * The annotations of these marks, by rising start. An end belongs to the latest open start of its name. `timeUs` are
 * the times of the events; where they go back, the latest time so far counts.
 */
export function annotationsOf(marks: readonly AnnotationMark[], timeUs: Float64Array): Annotation[] {
  if (marks.length === 0) return []
  const inOrder = [...marks].sort((a, b) => a.timeUs - b.timeUs)
  const found: OpenAnnotation[] = []
  const open = new Map<string, OpenAnnotation[]>()
  let event = 0
  for (const { isStart, name, timeUs: markUs } of inOrder) {
    while (event < timeUs.length && timeUs[event] < markUs) event++
    let alike = open.get(name)
    if (alike === undefined) {
      alike = []
      open.set(name, alike)
    }
    if (isStart) {
      const annotation = { name, startUs: markUs, start: event, endUs: Number.NaN, end: timeUs.length }
      found.push(annotation)
      alike.push(annotation)
      continue
    }
    const annotation = alike.pop() ?? { name, startUs: Number.NaN, start: 0, endUs: 0, end: 0 }
    if (Number.isNaN(annotation.startUs)) found.push(annotation)
    annotation.endUs = markUs
    annotation.end = event
  }
  return found.sort((a, b) => a.start - b.start)
}
