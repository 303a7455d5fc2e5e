// The entry of the page without data: takes recordings, has a worker read and replay them, and shows the result.

import { byId, element } from '../elements.js'
import { start } from '../start.js'
import type { ReaderMessage } from './reader-message.js'

/** The bundled reader: `build.ts` puts its text here. */
declare const READER_SOURCE: string

const [dialog, input] = [byId<HTMLDialogElement>('drop'), byId<HTMLInputElement>('drop-files')]
const [progress, said, problem] = [byId<HTMLProgressElement>('drop-progress'), byId('drop-said'), byId('drop-problem')]
let reader: Worker | null = null

function take(files: FileList | null | undefined): void {
  if (files == null || files.length === 0 || reader !== null) return
  problem.textContent = said.textContent = ''
  reader = new Worker(URL.createObjectURL(new Blob([READER_SOURCE], { type: 'text/javascript' })))
  reader.onmessage = ({ data }: MessageEvent<ReaderMessage>) => answer(data)
  reader.onerror = ({ message }) => answer({ kind: 'problem', text: message })
  reader.onmessageerror = () => answer({ kind: 'problem', text: 'the browser cannot pass the file on' })
  reader.postMessage([...files])
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
    problem.textContent = message.text
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

function allow(event: DragEvent): void {
  event.preventDefault()
}

function drop(event: DragEvent): void {
  event.preventDefault()
  take(event.dataTransfer?.files)
}

addEventListener('dragover', allow)
addEventListener('drop', drop)
input.addEventListener('change', () => take(input.files))
dialog.addEventListener('cancel', event => event.preventDefault())
dialog.showModal()
