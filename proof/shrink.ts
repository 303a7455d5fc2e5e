// Delta debugging: removes the operations that a failing program does not need to fail.

import type { Rule } from './mutants.js'
import { describeOperation } from './operation.js'
import { type Outcome, replayProgram } from './program.js'

/** The shortest program found with the same failure: no single operation can be removed. */
export async function shrink(failing: Outcome, rule?: Rule): Promise<Outcome> {
  let smallest = failing
  for (let size = Math.ceil(failing.operations.length / 2); ; size = Math.ceil(size / 2)) {
    const before = smallest.operations.length
    for (let start = 0; start < smallest.operations.length; ) {
      const rest = smallest.operations.toSpliced(start, size)
      const outcome = await replayProgram(failing.kind, failing.seed, rest, rule)
      if (outcome.failure?.name === failing.failure!.name) smallest = outcome
      else start += size
    }
    if (size === 1 && smallest.operations.length === before) return smallest
  }
}

/** A failing program as text: the failure, the operations before it, and the command that runs it again. */
export async function describeFailure(failing: Outcome, count: number, rule?: Rule): Promise<string> {
  const shrunk = await shrink(failing, rule)
  const { name, message } = shrunk.failure!
  return [
    `${name}: ${message}`,
    ...shrunk.operations.map((operation, index) => `${String(index + 1).padStart(4)}  ${describeOperation(operation)}`),
    `again: ${replayCommand(failing, count, rule)}`,
  ].join('\n')
}

function replayCommand({ kind, seed }: Outcome, count: number, rule?: Rule): string {
  const broken = rule === undefined ? '' : ` --rule '${rule}'`
  return `node dist/proof/run.js --kinds ${kind} --seed ${seed} --programs 1 --operations ${count}${broken}`
}
