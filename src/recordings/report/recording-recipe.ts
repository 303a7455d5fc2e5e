// How a run in PyTorch is recorded: the lines to copy.

/** The lines of Python, which also record a run that dies. */
const RECORDING_LINES: readonly string[] = [
  'torch.cuda.memory._record_memory_history(max_entries=1_000_000)',
  'try:',
  '    train()',
  'finally:',
  "    torch.cuda.memory._dump_snapshot('run.pickle')",
]

/** The same with a title, indented. */
export const RECIPE: string = recipe('To record a run in PyTorch, also one that dies:')
/** As `RECIPE`, where no setting can help. */
export const RECIPE_FOR_LINES: string = recipe('To see which lines hold it, record a run in PyTorch:')

function recipe(title: string): string {
  return [title, ...RECORDING_LINES.map(line => `  ${line}`)].join('\n')
}
