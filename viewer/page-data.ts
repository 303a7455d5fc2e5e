// The JSON of the page, which `src/recordings/report/page/page.ts` writes.

export type {
  PageData,
  PageDifference,
  PageFailure,
  PagePolicy,
  PageRecording,
} from '../src/recordings/report/page/page-data.js'
