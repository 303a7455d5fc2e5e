// The messages of the reader to the page without data.

export type ReaderMessage =
  | { readonly kind: 'progress'; readonly fraction: number; readonly what: string }
  /** the answer to an error message, in lines */
  | { readonly kind: 'answer'; readonly text: string }
  /** one line that names the file */
  | { readonly kind: 'problem'; readonly text: string }
  /** the JSON of the page, each picture packed by gzip as base64, and the name of the first recording */
  | { readonly kind: 'done'; readonly title: string; readonly data: string; readonly pictures: readonly string[] }
