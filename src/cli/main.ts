#!/usr/bin/env node
// The file that the command `cuda-mempool` runs. In the package it contains the whole command line.

import './program.js'
