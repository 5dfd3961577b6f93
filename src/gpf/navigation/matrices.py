"""Products of small matrices in compiled code, in flat memory owned by the caller.

A block of `ROWS` rows and `COLUMNS` columns of the product is kept in registers while the sum runs. All three products
of a linear layer (its outputs, and the gradients at its weights and at its inputs) are of this one form, because
only the second factor and the product need columns that lie next to each other.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing import Signature
from numba.extending import intrinsic

from gpf.plume.kernels import device

COLUMNS = 16
"""Columns of a block: one AVX-512 register, or two of AVX2. The columns of a matrix are padded to a multiple of it."""
ROWS = 4
"""Rows of a block: as many sums at once hide the latency of an addition."""


def padded(columns: int) -> int:
    """Columns in memory of a matrix with this many."""
    return -(-columns // COLUMNS) * COLUMNS


def _block(rows: int) -> Any:
    """The block of this many rows: C = begin + A B; all offsets and strides count float32 numbers."""

    @intrinsic
    def block(
        typing_context: Any, a: types.Type, a_at: types.Type, a_row: types.Type, a_column: types.Type,
        b: types.Type, b_at: types.Type, b_row: types.Type, begin: types.Type, begin_at: types.Type,
        begin_row: types.Type, c: types.Type, c_at: types.Type, c_row: types.Type, count: types.Type,
    ) -> tuple[Signature, Callable[..., Any]]:  # fmt: skip
        i = types.intp
        signature = types.void(a, i, i, i, b, i, i, begin, i, i, c, i, i, i)

        def codegen(context: Any, builder: Any, signature: Signature, arguments: Sequence[Any]) -> Any:
            _write_block(context, builder, signature, arguments, rows)
            return context.get_dummy_value()

        return signature, codegen

    return block


def _write_block(context: Any, builder: Any, signature: Any, arguments: Sequence[Any], rows: int) -> None:
    """Emit the instructions of a block."""
    _, a_at, a_row, a_column, _, b_at, b_row, _, begin_at, begin_row, _, c_at, c_row, count = arguments
    memory = {
        n: context.make_array(signature.args[n])(context, builder, arguments[n]).data for n in (0, 4, 7, 10)
    }  # fmt: skip
    vector = ir.VectorType(ir.FloatType(), COLUMNS)
    first = ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), [0] * COLUMNS)
    nothing = ir.Constant(vector, ir.Undefined)

    def at(n: int, *offsets: Any) -> Any:
        total = offsets[0]
        for offset in offsets[1:]:
            total = builder.add(total, offset)
        return builder.gep(memory[n], [total])

    def times(stride: Any, index: int) -> Any:
        return builder.mul(stride, ir.Constant(stride.type, index))

    def columns(pointer: Any) -> Any:
        return builder.bitcast(pointer, vector.as_pointer())

    sums = [cgutils.alloca_once(builder, vector) for _ in range(rows)]
    for row, total in enumerate(sums):
        builder.store(builder.load(columns(at(7, begin_at, times(begin_row, row))), align=4), total)
    with cgutils.for_range(builder, count, intp=count.type) as loop:
        factor = builder.load(columns(at(4, b_at, builder.mul(loop.index, b_row))), align=4)
        along = builder.mul(loop.index, a_column)
        for row, total in enumerate(sums):
            one = builder.load(at(0, a_at, times(a_row, row), along))
            spread = builder.shuffle_vector(
                builder.insert_element(nothing, one, ir.Constant(ir.IntType(32), 0)), nothing, first
            )
            product = builder.fmul(spread, factor, flags=("contract",))
            builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
    for row, total in enumerate(sums):
        builder.store(builder.load(total), columns(at(10, c_at, times(c_row, row))), align=4)


@intrinsic
def keep_where_positive(
    typing_context: Any, a: types.Type, a_at: types.Type, b: types.Type, b_at: types.Type, blocks: types.Type
) -> tuple[Signature, Callable[..., Any]]:
    """Set b to zero where a is not positive, in this many blocks of `COLUMNS` numbers; b may be a itself.

    Written as vectors, for compilers make branches of it, and these go the wrong way half of the time.
    """
    i = types.intp

    def codegen(context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
        _, a_at, _, b_at, blocks = arguments
        known, kept = (context.make_array(signature.args[n])(context, builder, arguments[n]).data for n in (0, 2))
        vector = ir.VectorType(ir.FloatType(), COLUMNS)
        zero = ir.Constant(vector, [0.0] * COLUMNS)
        with cgutils.for_range(builder, blocks, intp=blocks.type) as loop:
            step = builder.mul(loop.index, ir.Constant(blocks.type, COLUMNS))
            at = (builder.gep(known, [builder.add(a_at, step)]), builder.gep(kept, [builder.add(b_at, step)]))
            places = [builder.bitcast(pointer, vector.as_pointer()) for pointer in at]
            positive = builder.fcmp_ordered(">", builder.load(places[0], align=4), zero)
            builder.store(builder.select(positive, builder.load(places[1], align=4), zero), places[1], align=4)
        return context.get_dummy_value()

    return types.void(a, i, b, i, i), codegen


_rows_block = _block(ROWS)
_row_block = _block(1)


@device
def multiply(
    rows, columns, count, a, a_at, a_row, a_column, b, b_at, b_row, begin, begin_at, begin_row, c, c_at, c_row
):
    """Write C = begin + A B, of `rows` x `columns`, which is a multiple of `COLUMNS`, with a sum of `count` products.

    Each matrix is a flat float32 array, an offset and strides: A[m, k] is a[a_at + m a_row + k a_column], B[k, n] is
    b[b_at + k b_row + n], and so for C and for what the sum begins with, which may be C itself or, with a stride of
    0, one row for all.
    """
    blocks = rows - rows % ROWS
    for n in range(0, columns, COLUMNS):
        for m in range(0, blocks, ROWS):
            _rows_block(
                a, a_at + m * a_row, a_row, a_column, b, b_at + n, b_row,
                begin, begin_at + m * begin_row + n, begin_row, c, c_at + m * c_row + n, c_row, count,
            )  # fmt: skip
        for m in range(blocks, rows):
            _row_block(
                a, a_at + m * a_row, a_row, a_column, b, b_at + n, b_row,
                begin, begin_at + m * begin_row + n, begin_row, c, c_at + m * c_row + n, c_row, count,
            )  # fmt: skip
