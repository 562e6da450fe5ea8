"""Triangles inverted by halves: against NumPy's inverse."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from unmet import CensoredGP
from unmet._exceptions import NumericalError
from unmet._linalg import (
    cholesky,
    gram_of_lower,
    inverse_from_cholesky,
    inverse_lower,
    join_inverse,
    one_blas_thread,
    solve_lower,
)
from unmet.estimators import censored_gp

SIZES = [0, 1, 2, 47, 48, 49, 97, 200]


def lower(n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n))
    return cholesky(np.asfortranarray(A @ A.T + np.eye(n))) if n else np.zeros((0, 0), order="F")


@pytest.mark.parametrize("n", SIZES)
def test_the_inverse_by_halves_is_the_inverse_and_zero_above(n: int) -> None:
    L = lower(n)
    got = inverse_lower(L)
    np.testing.assert_allclose(got, np.linalg.inv(L), atol=1e-12)
    assert not np.triu(got, 1).any()


@pytest.mark.parametrize("n", SIZES)
def test_the_inverse_can_be_put_where_another_was(n: int) -> None:
    out = inverse_lower(lower(n) + np.eye(n))  # of another triangle
    np.testing.assert_array_equal(inverse_lower(lower(n), out), inverse_lower(lower(n)))


@pytest.mark.parametrize("n", SIZES)
def test_the_inverse_from_a_factor_is_that_of_the_matrix(n: int) -> None:
    L = lower(n)
    np.testing.assert_allclose(inverse_from_cholesky(L), np.tril(np.linalg.inv(L @ L.T)), atol=1e-12)


@pytest.mark.parametrize("h", [0, 1, 60, 100])
def test_blocks_of_any_size_are_joined(h: int) -> None:
    L = lower(100)
    joined = join_inverse(inverse_lower(L[:h, :h]), L[h:, :h].T, inverse_lower(L[h:, h:]))
    np.testing.assert_allclose(joined, np.linalg.inv(L), atol=1e-12)


def test_the_gram_matrix_is_of_columns() -> None:
    L = lower(30)
    expected = np.tril(L.T @ L)
    np.testing.assert_allclose(np.tril(gram_of_lower(L)), expected, atol=1e-12)


@pytest.mark.parametrize("transposed", [False, True])
def test_vectors_are_solved_like_matrices(transposed: bool) -> None:
    L, B = lower(30), np.asfortranarray(np.random.default_rng(0).normal(size=(30, 3)))
    by_matrix = solve_lower(L, B, transposed=transposed)
    np.testing.assert_allclose(by_matrix, np.linalg.solve(L.T if transposed else L, B), rtol=1e-9)
    for column in range(3):
        np.testing.assert_allclose(solve_lower(L, B[:, column], transposed=transposed), by_matrix[:, column], rtol=1e-9)


def test_a_singular_triangle_is_refused() -> None:
    with pytest.raises(NumericalError, match="singular at row 2"):
        inverse_lower(np.asfortranarray([[1.0, 0.0], [1.0, 0.0]]))


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_one_blas_thread_is_used_and_given_back(monkeypatch):
    for name in ("OMP", "OPENBLAS", "MKL", "BLIS"):
        monkeypatch.delenv(f"{name}_NUM_THREADS", raising=False)
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        assert set(before) == {2}
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert blas_threads() == before
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")  # who says how many gets as many
        with one_blas_thread():
            assert blas_threads() == before


def test_a_fit_uses_one_thread(monkeypatch):
    for name in ("OMP", "OPENBLAS", "MKL", "BLIS"):
        monkeypatch.delenv(f"{name}_NUM_THREADS", raising=False)
    seen = []
    search = censored_gp.search
    monkeypatch.setattr(censored_gp, "search", lambda *a, **k: (seen.extend(blas_threads()), search(*a, **k))[1])
    x = np.linspace(0, 5, 20)[:, None]
    with threadpool_limits(2, user_api="blas"):
        CensoredGP().fit(x, np.sin(x[:, 0]))
        assert set(blas_threads()) == {2}
    assert seen
    assert set(seen) == {1}
