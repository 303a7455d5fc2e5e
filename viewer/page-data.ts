// The JSON of the page, which `src/report/page.ts` writes.

export type { PageData, PageFailure, PagePolicy, PageRecording } from '../src/report/page-data.js'
