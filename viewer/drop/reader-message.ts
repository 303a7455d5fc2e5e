// The messages of the reader to the page without data.

export type ReaderMessage =
  | { readonly kind: 'progress'; readonly fraction: number; readonly what: string }
  /** one line that names the file */
  | { readonly kind: 'problem'; readonly text: string }
  /** the JSON of the page, and each picture packed by gzip as base64 */
  | { readonly kind: 'done'; readonly data: string; readonly pictures: readonly string[] }
