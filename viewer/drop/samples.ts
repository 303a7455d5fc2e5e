// The recordings of the project that the site's copy of the page offers to try.

interface Sample {
  /** its name in addresses, `try.html?sample=NAME` */
  readonly name: string
  /** its file in the folder traces, and in the folder samples of the site */
  readonly file: string
  /** its text in the list of samples */
  readonly text: string
}

export const SAMPLES: readonly Sample[] = [
  { name: 'out-of-memory', file: 'oom-retry-2gib.pickle.gz', text: 'A run that ran out of memory' },
  { name: 'training', file: 'mlp-train-stacks.pickle.gz', text: 'Training of a small model, with call stacks' },
  { name: 'server', file: 'graphs-serve.pickle.gz', text: 'A server with CUDA graphs' },
]

/** The list of samples, and the way to the rest of the site. */
export function samplesHtml(): string {
  const items = SAMPLES.map(
    ({ name, file, text }) =>
      `<li><a href="?sample=${name}" data-file="samples/${file}">${text}</a> (<a href="samples/${file}" download>file</a>)</li>`,
  )
  return `<nav id="drop-samples" aria-label="Samples"><p>No recording at hand? Look at one of these:</p>
<ul>
${items.join('\n')}
</ul>
<p><a href="index.html">What cuda-mempool is</a> · <a href="out-of-memory-in-pytorch.html">What to do when PyTorch runs out of memory</a></p></nav>`
}
