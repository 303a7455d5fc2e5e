// What the page's head says of each recording: texts that were made with it. `src/report/page-data.ts` writes it.

export type { PageData, PageFailure, PagePolicy, PageRecording } from '../src/report/page-data.js'
