"""What every measure asks of its arguments; each fault is a `ValueError` that names the place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: A float where the argument is one item, an array where it is many; NumPy's own functions are
#: typed the same way, because the number of dimensions is no part of a type.
FloatOrArray = Any


def _array(values: ArrayLike, name: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} is no array of numbers: {error}") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, not {array.dtype}")
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape})")
    return array


def _place(name: str, bad: Bools) -> str:
    if bad.ndim == 0:
        return name
    return f"{name}[{', '.join(str(int(i)) for i in np.argwhere(bad)[0])}]"


def _refuse(array: NDArray[Any], bad: Bools, name: str, expected: str) -> None:
    if bad.any():
        value = array[bad][0] if array.ndim else array[()]
        raise ValueError(f"{_place(name, bad)} is {value}: {expected}")


def finite_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """An array of finite numbers of any shape, in the type it came in.

    Raises:
        ValueError: it is empty, holds no numbers, or NaN or infinity.
    """
    array = _array(values, name)
    if array.dtype.kind == "f" and not (np.isfinite(array.min()) and np.isfinite(array.max())):
        _refuse(array, ~np.isfinite(array), name, "NaN or infinity is no input")
    return array


def finite_floats(values: ArrayLike, name: str) -> Floats:
    """The same as float64."""
    return finite_array(values, name).astype(np.float64, copy=False)


def finite_vector(values: ArrayLike, name: str) -> Floats:
    """A list of finite numbers, as float64 of shape (n,).

    Raises:
        ValueError: as `finite_array`, or another number of dimensions than one.
    """
    array = finite_floats(values, name)
    _one_dimension(array, name)
    return array


def vector(values: ArrayLike, name: str) -> Floats:
    """A list of numbers, which may be NaN or infinite, as float64 of shape (n,).

    Raises:
        ValueError: it is empty, holds no numbers, or another number of dimensions than one.
    """
    array = _array(values, name).astype(np.float64, copy=False)
    _one_dimension(array, name)
    return array


def _one_dimension(array: NDArray[Any], name: str) -> None:
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, not shape {array.shape}")


def same_length(*named: tuple[str, Sequence[Any] | NDArray[Any]]) -> None:
    """Refuse arrays whose first axes differ.

    Raises:
        ValueError: with both names and both lengths.
    """
    (first_name, first), *others = named
    for name, array in others:
        if len(array) != len(first):
            raise ValueError(
                f"{first_name} and {name} differ in length: {len(first)} and {len(array)}"
            )


def flags(values: ArrayLike, name: str) -> Bools:
    """Whether each item is right, as bool of shape (n,); 0 and 1 count as False and True.

    Raises:
        ValueError: empty, not one dimension, or a value other than 0 and 1.
    """
    array = _array(values, name)
    _one_dimension(array, name)
    if array.dtype.kind != "b":
        _refuse(array, (array != 0) & (array != 1), name, "expected 0 or 1")
    return array.astype(np.bool_, copy=False)


def scored_items(confidence: ArrayLike, correct: ArrayLike) -> tuple[Floats, Bools]:
    """A score and a correctness an item, of one length.

    Raises:
        ValueError: as `finite_vector` and `flags`, or lengths that differ.
    """
    scores = finite_vector(confidence, "confidence")
    right = flags(correct, "correct")
    same_length(("confidence", scores), ("correct", right))
    return scores, right


def scored_fractions(confidence: ArrayLike, correct: ArrayLike) -> tuple[Floats, Bools]:
    """The same where a score is a probability.

    Raises:
        ValueError: as `scored_items`, or a confidence outside [0, 1].
    """
    scores = _array(confidence, "confidence").astype(np.float64, copy=False)
    # NaN fails both; what is wrong is looked for only where something is.
    if not (scores.min() >= 0.0 and scores.max() <= 1.0):
        in_range(finite_floats(scores, "confidence"), "confidence", 0.0, 1.0, ", a fraction")
    _one_dimension(scores, "confidence")
    right = flags(correct, "correct")
    same_length(("confidence", scores), ("correct", right))
    return scores, right


def in_range(array: Floats, name: str, low: float, high: float, hint: str = "") -> None:
    """Refuse values outside [low, high].

    Raises:
        ValueError: with the first such value, its place and `hint`.
    """
    if array.min() < low or array.max() > high:
        _refuse(array, (array < low) | (array > high), name, f"outside [{low:g}, {high:g}]{hint}")


def percentages(values: ArrayLike, name: str, *, open_ends: bool = False) -> Floats:
    """Accuracies in percent, of any shape.

    Args:
        values: numbers.
        name: how the message calls them.
        open_ends: refuse exactly 0 and exactly 100, which have no logit.

    Raises:
        ValueError: as `finite_array`, or a value outside [0, 100].
    """
    array = finite_floats(values, name)
    in_range(array, name, 0.0, 100.0, ", in percent")
    if open_ends:
        ends = (array == 0.0) | (array == 100.0)
        _refuse(array, ends, name, "0 and 100 percent have no logit, leave such models out")
    return array


def whole_numbers(values: ArrayLike, name: str, count: int, what: str) -> Ints:
    """Indices into `count` things, as int64 of shape (n,).

    Args:
        values: whole numbers.
        name: how the message calls them.
        count: every index must be in 0 … count - 1.
        what: what is counted, for the message.

    Raises:
        ValueError: empty, not whole numbers, not one dimension, or an index out of range.
    """
    array = _array(values, name)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers, not {array.dtype}")
    _one_dimension(array, name)
    _refuse(array, (array < 0) | (array >= count), name, f"there are {count} {what}, from 0")
    return array.astype(np.int64, copy=False)


def one_of(value: str, name: str, choices: Sequence[str]) -> None:
    """Refuse a word that is not among `choices`.

    Raises:
        ValueError: with the choices.
    """
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: expected {' or '.join(map(repr, choices))}")


def integer(value: Any, name: str, low: int, high: int | None = None) -> int:
    """One whole number in [low, high]; NumPy's integers are welcome, floats and bools are not.

    Raises:
        ValueError: another type, or out of range.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"in {low} … {high}"
        raise ValueError(f"{name} is {value}: it must be {bounds}")
    return int(value)


def level(confidence: float) -> float:
    """A confidence level, strictly between 0 and 1.

    Raises:
        ValueError: it is not.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence}: expected a level between 0 and 1, as 0.95")
    return float(confidence)
