// Colours of the pictures, light and dark. The eight names are Okabe and Ito's, with a violet in place of black, a
// little nearer to the paper: large areas of full colours are loud.

import { CELLS, Cell, COLOURS, EDGE, type Palette } from '../cells.js'

export interface Theme {
  readonly isDark: boolean
  readonly paper: string
  readonly ink: string
  readonly quiet: string
  readonly grid: string
  readonly alarm: string
  readonly accent: string
  /** the area of the memory in use */
  readonly inUse: string
  /** colours of the cells, of edges from EDGE on, and of the marks of patterns from MARK on, as CSS */
  readonly cells: readonly string[]
  readonly palette: Palette
}

const OKABE_ITO = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442', '#7a68b8']
/** Below it a darker mark is hard to see. */
const MIDDLE_LUMA = 110
/** From early to late. */
const SCALE = ['#2c3a80', '#2f5c96', '#2b7c9b', '#2b9a92', '#52b57d', '#8fcb66', '#c9da5b', '#f3e66b']

const POLICIES: Readonly<Record<string, string>> = {
  recorded: '#d55e00',
  'cuda-mempool': '#0072b2',
  pytorch: '#e69f00',
  'pytorch-expandable': '#cc79a7',
  'driver-malloc': '#56b4e9',
  'driver-pool': '#009e73',
  'power-of-two': '#7a68b8',
  waiting: '#8a8f98',
}

/** The policies whose lines stand out: wider, and not dashed. */
const MAIN: readonly string[] = ['recorded', 'cuda-mempool']
/** Dashes and gaps of the other lines; policies with settings of their own have the last. */
const DASHES: Readonly<Record<string, readonly number[]>> = {
  pytorch: [8, 3],
  'pytorch-expandable': [3, 3],
  'driver-malloc': [8, 3, 2, 3],
  'driver-pool': [1.5, 3],
  'power-of-two': [12, 4],
}
const OTHER_DASH = [5, 2]

/** The line of a policy. */
export function policyLine(policy: string): { readonly width: number; readonly dash: readonly number[] } {
  return MAIN.includes(policy) ? { width: 2, dash: [] } : { width: 1.25, dash: DASHES[policy] ?? OTHER_DASH }
}

/** The colour of a policy. */
export function policyColour(policy: string, { isDark }: Theme): string {
  const colour = POLICIES[policy] ?? '#8a8f98'
  return isDark ? mixed(colour, '#ffffff', 0.2) : colour
}

export function themeOf(isDark: boolean, isScale: boolean): Theme {
  const paper = isDark ? '#15171b' : '#ffffff'
  const names = (isScale ? SCALE : OKABE_ITO).map(colour => mixed(colour, paper, isDark ? 0.16 : 0.1))
  const plain = isDark
    ? [paper, '#2b2724', '#4a5059', '#262a30', '#6d747f']
    : [paper, '#f7f0e9', '#c5c9cf', '#e8eaed', '#a7acb4']
  const cells = [...plain, ...names]
  const edges = cells.map(colour => mixed(colour, isDark ? '#000000' : '#1d2430', isDark ? 0.34 : 0.26))
  edges[Cell.unused] = isDark ? '#40372f' : '#ead9c8'
  edges[Cell.faded] = isDark ? '#2f343b' : '#dcdfe3'
  // Of a scale the order of its colours tells as much as patterns.
  const marks = cells.map((colour, cell) => (isScale && cell >= Cell.first ? colour : marked(colour, isDark)))
  marks[Cell.unused] = edges[Cell.unused]
  const gap = Array.from({ length: EDGE - CELLS }, () => paper)
  const all = [...cells, ...gap, ...edges, ...gap, ...marks]
  const palette = Uint32Array.from(all, rgbaOf)
  palette[Cell.nothing] = 0
  return {
    isDark,
    paper,
    ink: isDark ? '#e6e7e9' : '#1d1f23',
    quiet: isDark ? '#a2a8b1' : '#5c626b',
    grid: isDark ? '#2a2e35' : '#e9eae8',
    alarm: isDark ? '#ff8a7a' : '#b3261e',
    accent: isDark ? '#62b5e8' : '#0067a3',
    inUse: isDark ? '#3a4049' : '#dfe2e6',
    cells: all,
    palette,
  }
}

/** A pale colour of a cell, for boxes with text in them. */
export function tint(cell: number, theme: Theme): string {
  if (cell < Cell.first || cell >= Cell.first + COLOURS) return theme.isDark ? '#2b2f36' : '#eceeef'
  return mixed(theme.cells[cell], theme.paper, theme.isDark ? 0.62 : 0.66)
}

/** The colour of bytes that grew (more than 0) or shrank. */
function signColour(bytes: number, { isDark }: Theme): string {
  const colour = bytes > 0 ? '#d55e00' : '#0072b2'
  return isDark ? mixed(colour, '#ffffff', 0.2) : colour
}

/** A colour for boxes with text in them: pale where growth and shrinking cancel each other. */
export function signTint(grownBytes: number, shrunkBytes: number, theme: Theme): string {
  const net = grownBytes - shrunkBytes
  const share = net === 0 ? 0 : Math.abs(net) / (grownBytes + shrunkBytes)
  return mixed(signColour(net, theme), theme.paper, 0.94 - 0.34 * share)
}

/** The colour of a pattern's marks: darker, or lighter where the colour itself is dark. */
function marked(colour: string, isDark: boolean): string {
  const [red, green, blue] = channels(colour)
  const luma = 0.2126 * red + 0.7152 * green + 0.0722 * blue
  return luma < MIDDLE_LUMA ? mixed(colour, '#ffffff', 0.4) : mixed(colour, isDark ? '#000000' : '#1d2430', 0.42)
}

function mixed(colour: string, other: string, share: number): string {
  const [a, b] = [channels(colour), channels(other)]
  return `#${a
    .map((value, i) =>
      Math.round(value + (b[i] - value) * share)
        .toString(16)
        .padStart(2, '0'),
    )
    .join('')}`
}

/** `#rrggbb` as three numbers from 0 to 255. */
export function channels(colour: string): number[] {
  return [1, 3, 5].map(at => Number.parseInt(colour.slice(at, at + 2), 16))
}

/** As ImageData has it in memory, where the lowest byte comes first. */
function rgbaOf(colour: string): number {
  const [red, green, blue] = channels(colour)
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0
}
