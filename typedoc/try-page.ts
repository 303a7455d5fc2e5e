// The page that takes a recording, with its samples, and the ways to it from all other pages.

import { copyFileSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type Application, type DefaultThemeRenderContext, JSX, RendererEvent } from 'typedoc'
import { SAMPLES } from '../viewer/drop/samples.js'
import { PROJECT } from './project.js'

const PAGE = 'try.html'
/** The pages where people come who have a recording. */
const FOR_PYTORCH = ['index.html', 'out-of-memory-in-pytorch.html', 'recordings.html']

export function addTryPage(app: Application): void {
  const { hooks } = app.renderer
  hooks.on('sidebar.begin', context =>
    JSX.createElement('p', { class: 'try' }, linkTo(context, 'Try a recording in your browser')),
  )
  hooks.on('content.begin', context => {
    if (!FOR_PYTORCH.includes(context.page.url)) return JSX.createElement(JSX.Fragment, null)
    const link = linkTo(context, 'Drop its recording on this page')
    const promise = ': it needs no Node, and nothing leaves your browser.'
    return JSX.createElement('p', { class: 'try' }, 'PyTorch ran out of memory? ', link, promise)
  })
  app.renderer.on(RendererEvent.END, ({ outputDirectory }) => {
    mkdirSync(join(outputDirectory, 'samples'))
    copyFileSync(join(PROJECT, 'dist', 'viewer', PAGE), join(outputDirectory, PAGE))
    for (const { file } of SAMPLES) copyFileSync(join(PROJECT, 'traces', file), join(outputDirectory, 'samples', file))
    app.logger.info(`Open ${pathToFileURL(join(outputDirectory, 'index.html'))}, or serve the folder at any address`)
  })
}

function linkTo(context: DefaultThemeRenderContext, text: string): JSX.Element {
  return JSX.createElement('a', { href: context.relativeURL(PAGE) }, text)
}
