// cuda-mempool/report: recordings and replays as a page, and as files for other programs.

export { collapsedStacks } from '../recordings/report/export/collapsed.js'
export { allocationRows } from '../recordings/report/export/csv.js'
export { type HeldStack, heldStacks, peakEvent } from '../recordings/report/export/moment.js'
export { perfettoTrace } from '../recordings/report/export/perfetto.js'
export { type PolicyMemory, recordedMemory, replayedMemory } from '../recordings/report/export/policy-memory.js'
export { pprofProfile } from '../recordings/report/export/pprof.js'
export { REPORT_SCHEMA_VERSION, reportJson } from '../recordings/report/export/report-json.js'
export { pictureSvg } from '../recordings/report/export/svg.js'
export { type ReportOptions, reportPage } from '../recordings/report/page/page.js'
