// The JSON of the page, which `src/report/page/page.ts` writes.

export type { PageData, PageDifference, PageFailure, PagePolicy, PageRecording } from '../src/report/page/page-data.js'
