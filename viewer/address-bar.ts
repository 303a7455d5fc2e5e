// The view in the page's address, so that a link or a reload shows the same.

import { QUESTIONS } from '../src/recordings/picture/questions.js'
import type { State } from './page.js'
import { NO_ZOOM, type Zoom } from './views/icicle.js'

/** The state as the part of an address behind `#`. */
export function hashOf(state: State): string {
  const words = new URLSearchParams()
  const {
    recording,
    axis,
    from,
    to,
    cursor,
    grouping,
    only,
    without,
    group,
    find,
    a,
    b,
    question,
    pinned,
    inverted,
    machinery,
    zoom,
  } = state
  if (recording > 0) words.set('r', String(recording))
  words.set('e', String(cursor))
  words.set('z', `${round(from)}-${round(to)}`)
  if (axis === 'time') words.set('x', axis)
  words.set('colour', grouping)
  if (only.length > 0) words.set('only', only.join('.'))
  if (without.length > 0) words.set('without', without.join('.'))
  if (group !== null) words.set('g', String(group))
  if (find !== '') words.set('find', find)
  if (a !== null) words.set('a', String(a))
  if (b !== null) words.set('b', String(b))
  if (question !== 'at') words.set('q', question === 'step' ? `step.${state.step}` : question)
  if (pinned !== null) words.set('block', String(pinned))
  if (inverted) words.set('i', '1')
  if (machinery) words.set('h', '1')
  if (zoom.levels.length > 0) words.set('call', textOf(zoom))
  words.set('hide', state.hidden.join(' '))
  if (state.listed) words.set('list', '1')
  words.set('maps', state.maps.join(' '))
  return words.toString()
}

/** The state in an address; wrong parts of it are left out. */
export function stateOf(hash: string): Partial<State> {
  const words = new URLSearchParams(hash.replace(/^#/, ''))
  const state: Partial<State> = {}
  const whole = (name: string): number | null => {
    const text = words.get(name) ?? ''
    return /^\d{1,10}$/.test(text) ? Number(text) : null
  }
  const list = (name: string, gap = '.') => (words.get(name) ?? '').split(gap).filter(word => word !== '')
  state.recording = whole('r') ?? 0
  const cursor = whole('e')
  if (cursor !== null) state.cursor = cursor
  const range = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(words.get('z') ?? '')
  if (range !== null) Object.assign(state, { from: Number(range[1]), to: Number(range[2]) })
  if (words.get('x') === 'time') state.axis = 'time'
  if (words.has('colour')) state.grouping = words.get('colour') as State['grouping']
  state.only = list('only').map(Number).filter(Number.isInteger)
  state.without = list('without').map(Number).filter(Number.isInteger)
  state.group = whole('g')
  state.find = words.get('find') ?? ''
  state.a = whole('a')
  state.b = whole('b')
  const [question, step] = list('q')
  if (question !== undefined && Object.hasOwn(QUESTIONS, question)) state.question = question as keyof typeof QUESTIONS
  if (question === 'step' && /^\d+$/.test(step ?? '')) Object.assign(state, { question, step: Number(step) })
  state.pinned = whole('block')
  state.inverted = words.get('i') === '1'
  state.machinery = words.get('h') === '1'
  state.zoom = zoomOf(words.get('call') ?? '')
  state.listed = words.get('list') === '1'
  if (words.has('hide')) state.hidden = list('hide', ' ') // names may have dots
  if (words.has('maps')) state.maps = list('maps', ' ')
  return state
}

/** The keys of the calls, with `_` at the end of each step inwards but the last. */
function textOf({ path, levels }: Zoom): string {
  return levels.map((level, i) => path.slice(levels[i - 1] ?? 0, level).join('.')).join('_')
}

function zoomOf(text: string): Zoom {
  if (text === '') return NO_ZOOM
  const steps = text.split('_').map(step => step.split('.'))
  let level = 0
  return { path: steps.flat(), levels: steps.map(step => (level += step.length)) }
}

function round(value: number): number {
  return Math.max(0, Math.round(value * 1000) / 1000)
}
