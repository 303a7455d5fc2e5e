// The entry of the page without data: takes recordings, has a worker read and replay them, and shows the result.

import { byId, element } from '../elements.js'
import { start } from '../start.js'
import type { ReaderMessage } from './reader-message.js'

/** The bundled reader: `build.ts` puts its text here. */
declare const READER_SOURCE: string

const [dialog, input] = [byId<HTMLDialogElement>('drop'), byId<HTMLInputElement>('drop-files')]
const [progress, said, problem] = [byId<HTMLProgressElement>('drop-progress'), byId('drop-said'), byId('drop-problem')]
/** After an answer that says how to record. */
const RECORDED = '\n\nDrop the recording here: this page replays it, and says which settings help.'
const [pasted, answered] = [byId<HTMLTextAreaElement>('drop-text'), byId('drop-answer')]
const NO_WORKERS =
  'This browser runs no workers, which read the recordings: open the page in another one, or run npx cuda-mempool report.'
let reader: Worker | null = null

/** Browsers that understand these run the page and show its colours. */
function isRecent(): boolean {
  const { DecompressionStream, HTMLDialogElement } = globalThis
  const isThere = DecompressionStream !== undefined && HTMLDialogElement !== undefined
  return isThere && CSS.supports('color', 'light-dark(#000, #fff)')
}

function take(files: ArrayLike<File> | null | undefined): void {
  if (files == null || files.length === 0 || reader !== null) return
  problem.textContent = said.textContent = answered.textContent = ''
  if (globalThis.Worker === undefined) {
    refuse(NO_WORKERS)
    return
  }
  reader = new Worker(URL.createObjectURL(new Blob([READER_SOURCE], { type: 'text/javascript' })))
  reader.onmessage = ({ data }: MessageEvent<ReaderMessage>) => answer(data)
  reader.onerror = ({ message }) => answer({ kind: 'problem', text: message })
  reader.onmessageerror = () => answer({ kind: 'problem', text: 'the browser cannot pass the file on' })
  reader.postMessage(Array.from(files))
  input.disabled = true
  progress.hidden = false
}

function answer(message: ReaderMessage): void {
  if (message.kind === 'progress') {
    progress.value = message.fraction
    said.textContent = message.what
    return
  }
  // A worker that ended with a recording still has its memory.
  reader?.terminate()
  reader = null
  input.disabled = false
  input.value = ''
  progress.hidden = true
  said.textContent = ''
  if (message.kind === 'problem') {
    refuse(message.text)
    return
  }
  if (message.kind === 'answer') {
    const then = message.text.includes('_dump_snapshot') ? RECORDED : ''
    answered.textContent = message.text + then
    return
  }
  document.body.append(
    element('script', { type: 'application/json', id: 'data' }, message.data),
    ...message.pictures.map((picture, i) => element('script', { type: 'text/plain', id: `picture-${i}` }, picture)),
  )
  document.title = `${message.title} — memory report`
  dialog.close()
  dialog.remove()
  removeEventListener('dragover', allow)
  removeEventListener('drop', drop)
  void start()
}

function refuse(text: string): void {
  problem.textContent = text
}

/** Opens the sample that the address names; only the site's copy of the page has samples. */
async function takeSample(name: string, list: HTMLElement): Promise<void> {
  try {
    take([await fetched(name, list)])
  } catch (error) {
    said.textContent = ''
    refuse((error as Error).message)
  }
}

async function fetched(name: string, list: HTMLElement): Promise<File> {
  const link = list.querySelector<HTMLElement>(`a[href="?sample=${CSS.escape(name)}"]`)
  if (link === null) throw new Error(`This site has no sample '${name}': choose one of the list, or drop a recording.`)
  const path = link.dataset['file']!
  if (location.protocol === 'file:') {
    throw new Error(`A page opened as a file cannot fetch samples: drop ${path} here, which lies beside this page.`)
  }
  said.textContent = `fetching ${path}`
  const response = await fetch(path).catch((error: Error) => ({ ok: false as const, status: error.message }))
  if (response.ok) return new File([await response.blob()], path.split('/').at(-1)!)
  throw new Error(`The sample '${name}' is gone from this site (${response.status}): drop a recording of your own.`)
}

function allow(event: DragEvent): void {
  event.preventDefault()
}

function drop(event: DragEvent): void {
  event.preventDefault()
  take(event.dataTransfer?.files)
}

if (isRecent()) {
  byId('drop-old').remove()
  addEventListener('dragover', allow)
  addEventListener('drop', drop)
  input.addEventListener('change', () => take(input.files))
  const takeText = () => take([new File([pasted.value], 'the text')])
  pasted.addEventListener('change', takeText)
  pasted.addEventListener('paste', () => setTimeout(takeText)) // then the text is in the field
  dialog.addEventListener('cancel', event => event.preventDefault())
  dialog.showModal()
  const [sample, samples] = [
    new URLSearchParams(location.search).get('sample'),
    document.getElementById('drop-samples'),
  ]
  if (sample !== null && samples !== null) void takeSample(sample, samples)
}
