// The opcodes of Python's pickle format that make plain values, by the names in Python's documentation. A memory
// snapshot needs no others, and no others are read or written here.

export const MARK = 0x28
export const EMPTY_TUPLE = 0x29
export const STOP = 0x2e
export const BINFLOAT = 0x47
export const BININT = 0x4a
export const BININT1 = 0x4b
export const BININT2 = 0x4d
export const NONE = 0x4e
export const BINUNICODE = 0x58
export const EMPTY_LIST = 0x5d
export const APPEND = 0x61
export const APPENDS = 0x65
export const BINGET = 0x68
export const LONG_BINGET = 0x6a
export const BINPUT = 0x71
export const LONG_BINPUT = 0x72
export const SETITEM = 0x73
export const TUPLE = 0x74
export const SETITEMS = 0x75
export const EMPTY_DICT = 0x7d
export const PROTO = 0x80
export const TUPLE1 = 0x85
export const TUPLE2 = 0x86
export const TUPLE3 = 0x87
export const NEWTRUE = 0x88
export const NEWFALSE = 0x89
export const LONG1 = 0x8a
export const SHORT_BINUNICODE = 0x8c
export const BINUNICODE8 = 0x8d
export const MEMOIZE = 0x94
export const FRAME = 0x95
export const BYTEARRAY8 = 0x96
