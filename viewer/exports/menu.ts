// A menu below its button. It lies within the window, and closes by Escape and by a click or the focus elsewhere.

/** Pixels between the menu and the edge of the window, at least. */
const MARGIN = 8

/** Makes a menu of `details`, whose choices are in the element after the summary. */
export function makeMenu(details: HTMLDetailsElement): void {
  const [button, choices] = details.children as unknown as HTMLElement[]
  const place = () => {
    choices.style.right = ''
    const { left } = choices.getBoundingClientRect()
    if (left < MARGIN) choices.style.right = `${left - MARGIN}px`
  }
  details.addEventListener('toggle', place)
  addEventListener('resize', place)
  for (const kind of ['pointerdown', 'focusin']) {
    document.addEventListener(kind, ({ target }) => {
      if (!details.contains(target as Node)) details.open = false
    })
  }
  // The menu handles Escape before the page does, where Escape removes the filter.
  const key = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || !details.open) return
    details.open = false
    button.focus()
    event.stopPropagation()
  }
  document.addEventListener('keydown', key, { capture: true })
}
