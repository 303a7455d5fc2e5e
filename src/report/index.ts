// The public API of cuda-mempool/report: a recording as a page.

export { type ReportOptions, reportPage } from './page.js'
