// The public API of cuda-mempool/report: recordings and replays as a page, and as files for other
// programs.

export { collapsedStacks } from './export/collapsed.js'
export { allocationRows } from './export/csv.js'
export { type HeldStack, heldStacks, peakEvent } from './export/moment.js'
export { perfettoTrace } from './export/perfetto.js'
export { type PolicyMemory, recordedMemory, replayedMemory } from './export/policy-memory.js'
export { pprofProfile } from './export/pprof.js'
export { REPORT_SCHEMA_VERSION, reportJson } from './export/report-json.js'
export { pictureSvg } from './export/svg.js'
export { type ReportOptions, reportPage } from './page/page.js'
