// What the reader of the page without data tells the page.

export type ReaderMessage =
  | { readonly kind: 'progress'; readonly fraction: number; readonly what: string }
  /** one line that names the file */
  | { readonly kind: 'problem'; readonly text: string }
  /** the JSON of the page, and each picture packed by gzip as base64 */
  | { readonly kind: 'done'; readonly data: string; readonly pictures: readonly string[] }
