// The whole page as an image: its elements in an SVG, which the browser draws. Its pictures are images in it.

import { byId, element } from '../elements.js'

/** Pixels of a side that all browsers can draw. */
const MOST_PIXELS = 16_000
const MARGIN = 24
/** They do nothing in an image, nor does the heading of a list that is closed. */
const TOOLS = '#holders-tools, #failure button, #flow button, #list, .hide, section:has(> #events-table[hidden])'

/** An image of all sections, with a foot, `scale` times as large as the page or as large as browsers can draw. */
export async function imageOfPage(foot: string, scale: number): Promise<Blob> {
  const main = byId('page')
  const [width, height] = [main.clientWidth, main.scrollHeight + 3 * MARGIN]
  const copy = main.cloneNode(true) as HTMLElement
  const canvases = [...main.querySelectorAll('canvas')]
  for (const [i, canvas] of [...copy.querySelectorAll('canvas')].entries()) {
    const { clientWidth, clientHeight } = canvases[i]
    const picture = element('img', { src: canvases[i].toDataURL(), alt: '' })
    picture.style.cssText = `display: block; width: ${clientWidth}px; height: ${clientHeight}px`
    canvas.replaceWith(picture)
  }
  const chosen = [...main.querySelectorAll('select')].map(({ selectedOptions: [option] }) => option?.text ?? '')
  for (const [i, select] of [...copy.querySelectorAll('select')].entries()) {
    select.replaceWith(element('b', {}, chosen[i]))
  }
  for (const tool of copy.querySelectorAll(TOOLS)) tool.remove()
  for (const list of copy.querySelectorAll<HTMLElement>('.scroll')) list.style.maxHeight = 'none'
  copy.append(element('p', { class: 'quiet' }, foot))
  const image = new Image()
  image.src = `data:image/svg+xml,${encodeURIComponent(svgOf(copy, width, height))}`
  await image.decode()
  const fitting = Math.min(scale, MOST_PIXELS / Math.max(width, height))
  const canvas = new OffscreenCanvas(Math.round(width * fitting), Math.round(height * fitting))
  canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height)
  return canvas.convertToBlob({ type: 'image/png' })
}

/** The elements with the style of the page. */
function svgOf(copy: HTMLElement, width: number, height: number): string {
  const root = document.documentElement
  const { colorScheme } = getComputedStyle(byId('page'))
  const body = element('div', {})
  const { fontSize, lineHeight, fontFamily, color, backgroundColor } = getComputedStyle(document.body)
  Object.assign(body.style, { fontSize, lineHeight, fontFamily, color, backgroundColor, minHeight: `${height}px` })
  body.style.padding = `${MARGIN}px 0`
  body.style.fontVariantNumeric = 'tabular-nums'
  body.append(copy)
  const style = document.querySelector('style')?.textContent ?? ''
  const markup = new XMLSerializer().serializeToString(body)
  const looks = `color-scheme: ${colorScheme}; font-size: ${getComputedStyle(root).fontSize}`
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" style="${looks}"` +
    ` data-theme="${root.dataset['theme'] ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')}">` +
    `<style>${style.replaceAll('&', '&amp;').replaceAll('<', '&lt;')}</style>` +
    `<foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`
  )
}
