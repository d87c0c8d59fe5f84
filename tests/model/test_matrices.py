"""Sparse rows do what dense ones do: selected, cut, multiplied, and the gradient of the weight."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vcr_graphormer.model.dropout import dropout
from vcr_graphormer.model.matrices import Selection, SparseRows, choose, project, row_sums, select, slice_rows

# Rows of 2, 0, 3 and 1 entries.
EXAMPLE = torch.tensor([[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 4.0, 5.0, 0.0], [0.0, 0.0, 6.0, 0.0]])


def to_sparse(dense: Tensor, index: torch.dtype = torch.int32) -> SparseRows:
    csr = sp.csr_matrix(dense.numpy())
    indptr, indices = (torch.from_numpy(part).to(index) for part in (csr.indptr, csr.indices))
    return SparseRows(indptr, indices, torch.from_numpy(csr.data), dense.shape[1])


def to_dense(rows: SparseRows) -> Tensor:
    """Entry by entry."""
    dense = torch.zeros(rows.shape, dtype=rows.values.dtype)
    for row in range(rows.shape[0]):
        for place in range(int(rows.indptr[row]), int(rows.indptr[row + 1])):
            dense[row, int(rows.indices[place])] += rows.values[place]
    return dense


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """Up to 6 × 5 entries, most of them zero, in float64."""
    rows, columns = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    kept = generator.random((rows, columns)) < draw(st.sampled_from([0.0, 0.3, 0.8]))
    return torch.from_numpy(generator.normal(size=(rows, columns)) * kept)


def product_and_gradient(matrix: Tensor | SparseRows, weight: Tensor, outer: Tensor) -> tuple[Tensor, Tensor]:
    leaf = weight.clone().requires_grad_()
    product = project(matrix, leaf)
    product.backward(outer)  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return product.detach(), leaf.grad


def test_literal_values() -> None:
    rows = to_sparse(EXAMPLE)
    assert rows.indptr.tolist() == [0, 2, 2, 5, 6]
    assert rows.indices.tolist() == [1, 3, 0, 1, 2, 2]
    assert rows.values.tolist() == [2, 1, 3, 4, 5, 6]
    assert (rows.shape, rows.nbytes) == ((4, 4), 4 * (5 + 6 + 6))
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [10.0, 0.0]])
    assert project(rows, weight).tolist() == [[10, 2], [0, 0], [8, 9], [6, 6]]
    order, starts, owners = rows.transposed
    assert order.tolist() == [2, 0, 3, 4, 5, 1]
    assert starts.tolist() == [0, 1, 3, 5, 6]
    assert owners.tolist() == [2, 0, 2, 2, 3, 0]
    assert rows.transposed[0] is order  # computed once


@settings(deadline=None)
@given(matrices(), st.sampled_from([torch.int32, torch.int64]), st.data())
def test_select_and_slice(dense: Tensor, index: torch.dtype, data: st.DataObject) -> None:
    rows = to_sparse(dense, index)
    count = dense.shape[0]
    places = torch.tensor(data.draw(st.lists(st.integers(0, count - 1), max_size=9)) if count else [], dtype=torch.long)
    chosen = rows.select(places)
    assert torch.equal(to_dense(chosen), dense[places])
    assert chosen.indptr.dtype == chosen.indices.dtype == index
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count + 3))
    assert torch.equal(to_dense(rows.slice(start, stop)), dense[start:stop])
    assert torch.equal(to_dense(chosen.slice(0, 2)), dense[places][:2])


@settings(deadline=None)
@given(matrices(), st.sampled_from([torch.int32, torch.int64]))
def test_transposed(dense: Tensor, index: torch.dtype) -> None:
    rows = to_sparse(dense, index)
    order, starts, owners = rows.transposed
    turned = SparseRows(starts, owners, rows.values[order], dense.shape[0])
    assert torch.equal(to_dense(turned), dense.t())


@settings(deadline=None)
@given(matrices(), st.sampled_from([torch.int32, torch.int64]))
def test_turn(dense: Tensor, index: torch.dtype) -> None:
    rows = to_sparse(dense, index)
    turned, (order, starts, owners) = rows.turn(2 * rows.values), rows.transposed
    assert torch.equal(to_dense(turned), 2 * dense.t())
    assert turned.shape == (dense.shape[1], dense.shape[0])
    assert torch.equal(turned.indices, owners)
    assert torch.equal(turned.indptr, starts)
    assert torch.equal(turned.values, 2 * rows.values[order])


@settings(deadline=None)
@given(matrices(), st.sampled_from([torch.int32, torch.int64]), st.data())
def test_dropped_entries_are_left_out_by_the_random_numbers_of_dropout(
    dense: Tensor, index: torch.dtype, data: st.DataObject
) -> None:
    rows, count = to_sparse(dense, index), dense.shape[0]
    places = torch.tensor(data.draw(st.lists(st.integers(0, count - 1), max_size=9)) if count else [], dtype=torch.long)
    chosen, seed = rows.select(places), data.draw(st.integers(0, 99))
    fraction = data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    for matrix, copied in ((rows, rows), (Selection(rows, places), chosen)):
        torch.manual_seed(seed)
        values = dropout(copied.values, fraction)
        torch.manual_seed(seed)
        dropped, kept = matrix.drop(fraction)
        assert torch.equal(kept, values[values != 0])
        assert torch.equal(to_dense(dropped), to_dense(SparseRows(copied.indptr, copied.indices, values, rows.width)))
        assert dropped.indptr.dtype == dropped.indices.dtype == index


def test_threads_change_no_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(900, 400, generator=generator) * (torch.rand(900, 400, generator=generator) < 0.8)
    rows, weight, outer = to_sparse(dense), torch.randn(400, 3), torch.randn(1000, 3)
    chosen = choose(rows, torch.randint(0, 900, (1000,), generator=generator))
    assert isinstance(chosen, Selection)
    assert chosen.shape == (1000, 400)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            leaf = weight.clone().requires_grad_()
            product = project(chosen, leaf, dropout=0.3)
            product.backward(outer)  # type: ignore[no-untyped-call]
            assert leaf.grad is not None
            copied = chosen.copied()
            found.append((product.detach(), leaf.grad, copied.values, copied.turn(copied.values).values))
    finally:
        torch.set_num_threads(before)
    for several in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], several, strict=True))


def test_chosen_rows_are_those_selected() -> None:
    rows, nodes, weight = to_sparse(EXAMPLE), torch.tensor([2, 0, 2]), torch.randn(4, 3)
    chosen = choose(rows, nodes)
    assert isinstance(chosen, Selection)
    torch.testing.assert_close(project(chosen, weight), EXAMPLE[nodes] @ weight)
    assert torch.equal(row_sums(chosen), row_sums(rows.select(nodes)))
    again, moved = select(chosen, torch.tensor([1, 2])), chosen.to(torch.device("cpu"))
    assert isinstance(again, SparseRows)
    assert torch.equal(to_dense(again), EXAMPLE[[0, 2]])
    assert torch.equal(to_dense(moved), EXAMPLE[nodes])
    assert torch.equal(choose(EXAMPLE, nodes), EXAMPLE[nodes])  # type: ignore[arg-type]
    half = rows.to(torch.device("cpu"), torch.bfloat16)  # a type that compiled loops do not know
    torch.testing.assert_close(project(Selection(half, nodes), weight), EXAMPLE[nodes] @ weight)


@settings(deadline=None)
@given(matrices(), st.integers(1, 4), st.sampled_from([torch.int32, torch.int64]))
def test_product_and_gradient_equal_the_dense_ones(dense: Tensor, width: int, index: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(dense.shape[1], width, generator=generator, dtype=torch.float64)
    outer = torch.randn(dense.shape[0], width, generator=generator, dtype=torch.float64)
    product, gradient = product_and_gradient(to_sparse(dense, index), weight, outer)
    torch.testing.assert_close(product, dense @ weight)
    torch.testing.assert_close(gradient, dense.t() @ outer)
    for mine, theirs in zip((product, gradient), product_and_gradient(dense, weight, outer), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("places", [[], [1], [2, 2, 2], [3, 0, 1, 0]])
def test_repeated_and_empty_rows(places: list[int]) -> None:
    nodes = torch.tensor(places, dtype=torch.long)
    weight, outer = torch.randn(4, 3), torch.randn(len(places), 3)
    product, gradient = product_and_gradient(to_sparse(EXAMPLE).select(nodes), weight, outer)
    torch.testing.assert_close(product, EXAMPLE[nodes] @ weight)
    torch.testing.assert_close(gradient, EXAMPLE[nodes].t() @ outer)


def test_an_empty_matrix() -> None:
    rows = to_sparse(torch.zeros(3, 4))
    product, gradient = product_and_gradient(rows, torch.ones(4, 2), torch.ones(3, 2))
    assert product.tolist() == [[0, 0]] * 3
    assert gradient.tolist() == [[0, 0]] * 4
    assert to_dense(rows.slice(1, 3)).tolist() == [[0] * 4] * 2


def test_a_gradient_that_is_not_contiguous() -> None:
    weight = torch.randn(4, 3, requires_grad=True)
    project(to_sparse(EXAMPLE), weight).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, EXAMPLE.sum(0)[:, None].expand(4, 3))


def test_to_another_type_and_to_nothing_new() -> None:
    rows, cpu = to_sparse(EXAMPLE), torch.device("cpu")
    assert rows.to(cpu) is rows
    assert rows.to(cpu, torch.float32) is rows
    half = rows.to(cpu, torch.bfloat16)
    assert half.values.dtype == torch.bfloat16
    assert torch.equal(to_dense(half).float(), EXAMPLE)
    weight = torch.randn(4, 3)
    torch.testing.assert_close(project(half, weight), EXAMPLE @ weight)  # in the type of the weight
    torch.testing.assert_close(project(EXAMPLE.bfloat16(), weight), EXAMPLE @ weight)


def test_dense_and_sparse_by_the_same_functions() -> None:
    rows, nodes = to_sparse(EXAMPLE), torch.tensor([2, 0, 2])
    chosen, cut = select(rows, nodes), slice_rows(rows, 1, 9)
    assert isinstance(chosen, SparseRows)
    assert isinstance(cut, SparseRows)
    assert torch.equal(to_dense(chosen), EXAMPLE[nodes])
    assert torch.equal(to_dense(cut), EXAMPLE[1:])
    dense_chosen, dense_cut = select(EXAMPLE, nodes), slice_rows(EXAMPLE, 1, 9)
    assert isinstance(dense_chosen, Tensor)
    assert isinstance(dense_cut, Tensor)
    assert torch.equal(dense_chosen, EXAMPLE[nodes])
    assert torch.equal(dense_cut, EXAMPLE[1:])


def test_slices_share_memory() -> None:
    rows = to_sparse(EXAMPLE)
    assert rows.slice(2, 4).values.data_ptr() == rows.values[2:].data_ptr()


@pytest.mark.parametrize("sparse", [False, True])
def test_dropout_hides_entries_and_scales_the_others(sparse: bool) -> None:
    torch.manual_seed(0)
    matrix = to_sparse(EXAMPLE) if sparse else EXAMPLE
    often = select(matrix, torch.arange(4).repeat(4000))
    seen = project(often, torch.eye(4), dropout=0.25).reshape(4000, 4, 4)
    values = sorted(set(seen[:, 2, 1].tolist()))
    assert values == [0.0, pytest.approx(4 * 4 / 3)]
    torch.testing.assert_close(seen.mean(0), EXAMPLE, rtol=0.05, atol=1e-6)
    assert (seen[:, EXAMPLE > 0] == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("sparse", [False, True])
def test_dropout_of_the_product_is_that_of_its_gradient(sparse: bool) -> None:
    torch.manual_seed(0)
    matrix = to_sparse(EXAMPLE) if sparse else EXAMPLE
    weight = torch.eye(4, requires_grad=True)
    seen = project(matrix, weight, dropout=0.5)
    outer = torch.randn(4, 4)
    seen.backward(outer)  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, seen.detach().t() @ outer)
    assert torch.equal(to_dense(matrix) if isinstance(matrix, SparseRows) else matrix, EXAMPLE)  # left as it was


def test_row_sums_of_absolute_values() -> None:
    dense = torch.tensor([[1.0, -3.0], [0.0, 0.0], [0.5, 0.0]])
    sparse = to_sparse(dense)
    for matrix in (dense, sparse):
        torch.testing.assert_close(row_sums(matrix), torch.tensor([[4.0], [1e-12], [0.5]]))
    torch.testing.assert_close(row_sums(sparse.slice(1, 3)), torch.tensor([[1e-12], [0.5]]))
