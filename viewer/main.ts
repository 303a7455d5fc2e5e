// The entry of a page with data.

import { start } from './start.js'

void start()
