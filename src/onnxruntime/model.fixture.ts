// ONNX models, written as protobuf, with x of any number of rows: y = relu(x · w) · w, and stacks of such layers.

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
  const nodes = [node('MatMul', ['x', 'w'], 'a'), node('Relu', ['a'], 'b'), node('MatMul', ['b', 'w'], 'y')]
  return model(width, nodes, [weight])
}

/** As a file: `layers` times relu(x · w + b), whose result is x where x is positive. All have the same weights. */
export function stackedModel(width: number, layers: number): Uint8Array {
  const identity = Float32Array.from({ length: width * width }, (_, i) => (i % (width + 1) === 0 ? 1 : 0))
  const zeros = new Uint8Array(width * Float32Array.BYTES_PER_ELEMENT)
  const nodes = Array.from({ length: layers }, (_, layer) => [
    node('MatMul', [layer === 0 ? 'x' : `y${layer - 1}`, 'w'], `a${layer}`),
    node('Add', [`a${layer}`, 'b'], `b${layer}`),
    node('Relu', [`b${layer}`], layer === layers - 1 ? 'y' : `y${layer}`),
  ])
  return model(width, nodes.flat(), [
    [
      ...int(1, width),
      ...int(1, width),
      ...int(2, FLOAT),
      ...text(8, 'w'),
      ...bytes(9, new Uint8Array(identity.buffer)),
    ],
    [...int(1, width), ...int(2, FLOAT), ...text(8, 'b'), ...bytes(9, zeros)],
  ])
}

function model(width: number, nodes: readonly number[][], weights: readonly number[][]): Uint8Array {
  const graph = [
    ...nodes.flatMap(each => bytes(1, each)),
    ...text(2, 'small'),
    ...weights.flatMap(each => bytes(5, each)),
    ...bytes(11, matrix('x', width)),
    ...bytes(12, matrix('y', width)),
  ]
  const operators = [...text(1, ''), ...int(2, 13)]
  return Uint8Array.from([...int(1, 8), ...bytes(7, graph), ...bytes(8, operators)])
}
