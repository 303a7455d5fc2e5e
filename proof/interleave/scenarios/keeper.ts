import type { Scenario } from '../stage.js'

export const scenarios: Record<string, Scenario> = {}
