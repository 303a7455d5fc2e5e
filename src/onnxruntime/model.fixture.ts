// A small ONNX model, written as protobuf: y = relu(x · w) · w, with x of any number of rows.

const INT = 0
const BYTES = 2
const FLOAT = 1 // of TensorProto.DataType
const EXTERNAL = 1 // of TensorProto.DataLocation

function varint(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...varint(Math.floor(value / 128))]
}

function int(field: number, value: number): number[] {
  return [...varint(field * 8 + INT), ...varint(value)]
}

function bytes(field: number, value: Uint8Array | number[]): number[] {
  return [...varint(field * 8 + BYTES), ...varint(value.length), ...value]
}

function text(field: number, value: string): number[] {
  return bytes(field, Buffer.from(value))
}

function matrix(name: string, width: number): number[] {
  const shape = [...bytes(1, text(2, 'rows')), ...bytes(1, int(1, width))]
  return [...text(1, name), ...bytes(2, bytes(1, [...int(1, FLOAT), ...bytes(2, shape)]))]
}

function node(operator: string, inputs: readonly string[], output: string): number[] {
  return [...inputs.flatMap(input => text(1, input)), ...text(2, output), ...text(4, operator)]
}

/** The weights as a file: 0.5 on the diagonal, and 0 elsewhere. */
export function smallWeights(width: number): Uint8Array {
  const values = Float32Array.from({ length: width * width }, (_, i) => (i % (width + 1) === 0 ? 0.5 : 0))
  return new Uint8Array(values.buffer)
}

/**
 * The model as a file: y is x / 4 where x is positive, and 0 elsewhere. With `weightsFile` its weights lie in a file of
 * that name.
 */
export function smallModel(width: number, weightsFile?: string): Uint8Array {
  const data =
    weightsFile === undefined
      ? bytes(9, smallWeights(width))
      : [...bytes(13, [...text(1, 'location'), ...text(2, weightsFile)]), ...int(14, EXTERNAL)]
  const weight = [...int(1, width), ...int(1, width), ...int(2, FLOAT), ...text(8, 'w'), ...data]
  const graph = [
    ...bytes(1, node('MatMul', ['x', 'w'], 'a')),
    ...bytes(1, node('Relu', ['a'], 'b')),
    ...bytes(1, node('MatMul', ['b', 'w'], 'y')),
    ...text(2, 'small'),
    ...bytes(5, weight),
    ...bytes(11, matrix('x', width)),
    ...bytes(12, matrix('y', width)),
  ]
  const operators = [...text(1, ''), ...int(2, 13)]
  return Uint8Array.from([...int(1, 8), ...bytes(7, graph), ...bytes(8, operators)])
}
