// Passes descriptors and closes the connection at once, as most tests need.

import { acceptDescriptor, offerDescriptor, type PassOptions, type ReceivedDescriptor } from './descriptors.js'

export async function sendDescriptor(
  path: string,
  descriptor: number,
  message: Uint8Array = new Uint8Array(0),
  options: PassOptions = {},
): Promise<void> {
  const connection = await offerDescriptor(path, descriptor, message, options)
  connection.close()
}

export async function receiveDescriptor(path: string, options: PassOptions = {}): Promise<ReceivedDescriptor> {
  const { connection, ...received } = await acceptDescriptor(path, options)
  connection.close()
  return received
}
