// The door between a thread and the keeper (src/pool/door.ts) as two small programs over three cells, run through all
// interleavings. Each has a buffer in which its plain stores wait before the other one sees them, as in x64 processors
// (total store order); a barrier empties it. A rule can be broken on purpose.

export type DoorRule =
  | 'the keeper makes a barrier in the thread, or the thread makes its own'
  | 'the thread says that it is inside, then looks'
  | 'the keeper shuts, then looks'
  | 'the thread leaves when it has emptied the place'
  | 'the keeper opens when it has emptied the place'
  | 'what a thread that stays inside has is left to it'

export interface DoorRun {
  readonly states: number
  /** what went wrong first, and how it came to that; null when nothing can */
  readonly failure: { readonly message: string; readonly steps: readonly string[] } | null
}

const enum Cell {
  shut,
  inside,
  /** 1 while a block is there */
  place,
}
const enum Who {
  thread,
  keeper,
}
const TURNS: Record<Who, number> = { [Who.thread]: 3, [Who.keeper]: 2 }

type Step =
  | { readonly store: Cell; readonly value: number; readonly fenced?: boolean }
  /** goes on at the first step named for what it finds, or at any of them */
  | { readonly load: Cell; readonly found: readonly [none: readonly string[], one: readonly string[]] }
  /** the keeper's, in both */
  | { readonly barrier: true }
  /** has the block, or gives it back */
  | { readonly takes: boolean }
  | { readonly goto: string }
type Program = readonly (readonly [name: string, step: Step])[]

interface World {
  cells: number[]
  /** by program: stores that the other one does not see yet */
  buffers: [Cell, number][][]
  at: number[]
  turns: number[]
  /** somebody has the block of the place */
  taken: boolean
}

/** Runs everything that can happen when threads make barriers themselves, or not. */
export function runDoor(isFenced: boolean, broken: DoorRule | null = null): DoorRun {
  const programs = [threadOf(isFenced, broken), keeperOf(isFenced, broken)]
  const first: World = { cells: [0, 0, 1], buffers: [[], []], at: [0, 0], turns: [0, 0], taken: false }
  const seen = new Set<string>()
  const open: { world: World; steps: readonly string[] }[] = [{ world: first, steps: [] }]
  for (let last = open.pop(); last !== undefined; last = open.pop()) {
    const key = JSON.stringify(last.world)
    if (seen.has(key)) continue
    seen.add(key)
    const { world, steps } = last
    try {
      const next = [Who.thread, Who.keeper].flatMap(who => [
        ...stepsOf(world, programs[who], who),
        ...drain(world, who),
      ])
      if (next.length === 0 && world.turns.some((turns, who) => turns < TURNS[who as Who]))
        throw new Error('nobody can go on')
      for (const [name, after] of next) open.push({ world: after, steps: [...steps, name] })
    } catch (error) {
      return { states: seen.size, failure: { message: (error as Error).message, steps } }
    }
  }
  return { states: seen.size, failure: null }
}

function threadOf(isFenced: boolean, broken: DoorRule | null): Program {
  const say = [
    'say',
    { store: Cell.inside, value: 1, fenced: isFenced && !isRule(broken, 'the keeper makes a barrier') },
  ] as const
  const look = (open: string) => ['look', { load: Cell.shut, found: [[open], ['leave without']] }] as const
  const take = ['take', { load: Cell.place, found: [['leave without'], ['has']] }] as const
  const empty = ['empty', { store: Cell.place, value: 0 }] as const
  const leave = ['leave', { store: Cell.inside, value: 0 }] as const
  return [
    ...(isRule(broken, 'the thread says') ? [look('say'), say] : [say, look('take')]),
    take,
    ['has', { takes: true }],
    ...(isRule(broken, 'the thread leaves') ? [leave, empty] : [empty, leave]),
    ['gives back', { takes: false }],
    ['put', { store: Cell.place, value: 1 }],
    ['done', { goto: 'end' }],
    ['leave without', { store: Cell.inside, value: 0 }],
  ]
}

function keeperOf(isFenced: boolean, broken: DoorRule | null): Program {
  const hasBarrier = !isFenced && !isRule(broken, 'the keeper makes a barrier')
  const shut: Program = [
    ['shut', { store: Cell.shut, value: 1, fenced: true }],
    ...(hasBarrier ? ([['barrier', { barrier: true }]] as const) : []),
  ]
  const patient = ['look', isRule(broken, 'what a thread') ? 'take' : 'open']
  const look = (then: string) => ['look', { load: Cell.inside, found: [[then], patient] }] as const
  const open: Program = [['open', { store: Cell.shut, value: 0, fenced: true }]]
  const take: Program = [
    ['take', { load: Cell.place, found: [['passed'], ['has']] }],
    ['has', { takes: true }],
    ['empty', { store: Cell.place, value: 0, fenced: true }],
    ['passed', { goto: 'next' }],
  ]
  const next: Program = [['next', { goto: isRule(broken, 'the keeper opens') ? 'end' : 'open' }]]
  if (isRule(broken, 'the keeper shuts')) return [look('shut'), ...shut, ...take, ...next, ...open]
  if (isRule(broken, 'the keeper opens')) return [...shut, look('open'), ...open, ...take, ...next]
  return [...shut, look('take'), ...take, ...next, ...open]
}

function isRule(broken: DoorRule | null, start: string): boolean {
  return broken?.startsWith(start) ?? false
}

/** What can be after the next step of a program: one world, or two where it may go on at two places. */
function stepsOf(world: World, program: Program, who: Who): [string, World][] {
  if (world.turns[who] === TURNS[who]) return []
  const [name, step] = program[world.at[who]]
  const label = `${who === Who.thread ? 'thread' : 'keeper'}: ${name}`
  const after = (to: string | null): [string, World] => {
    const next = structuredClone(world)
    next.at[who] = to === null ? next.at[who] + 1 : program.findIndex(([other]) => other === to)
    if (to === 'end' || next.at[who] === program.length) {
      next.at[who] = 0
      next.turns[who]++
    }
    return [label, next]
  }
  if ('goto' in step) return [after(step.goto)]
  if ('load' in step) return step.found[loaded(world, step.load, who)].map(after)
  const [, next] = after(null)
  if ('takes' in step) {
    if (step.takes && world.taken) throw new Error('a block is handed out twice')
    next.taken = step.takes
  } else if ('barrier' in step) {
    for (const one of [Who.thread, Who.keeper]) flush(next, one, next.buffers[one].length)
  } else {
    next.buffers[who].push([step.store, step.value])
    if (step.fenced) flush(next, who, next.buffers[who].length)
  }
  return [[label, next]]
}

/** What a program loads: its own latest store, if that waits. */
function loaded({ cells, buffers }: World, cell: Cell, who: Who): number {
  return buffers[who].findLast(([stored]) => stored === cell)?.[1] ?? cells[cell]
}

/** The oldest store of a program is seen by the other one. */
function drain(world: World, who: Who): [string, World][] {
  if (world.buffers[who].length === 0) return []
  const next = structuredClone(world)
  flush(next, who, 1)
  return [[`a store of the ${who === Who.thread ? 'thread' : 'keeper'} is seen`, next]]
}

function flush({ cells, buffers }: World, who: Who, count: number): void {
  for (const [cell, value] of buffers[who].splice(0, count)) cells[cell] = value
}
