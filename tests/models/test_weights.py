from __future__ import annotations

import os
import pickle
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from curate.errors import LabelSpaceError, UnknownNameError, WeightsError
from curate.labels.space import load_label_space
from curate.models.weights import load_strictly, read_weights, state_dict_of

STATE = {"conv.weight": torch.arange(24.0).reshape(2, 3, 4), "fc.bias": torch.ones(5)}


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth", ".bin"])
def test_a_state_dict_comes_back_as_it_was_saved(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    save_file(STATE, path) if suffix == ".safetensors" else torch.save(STATE, path)
    read = state_dict_of(read_weights(path), "here")
    assert read.keys() == STATE.keys()
    assert all(torch.equal(read[key], STATE[key]) for key in STATE)


def test_the_old_format_of_torch_save_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.pth"
    torch.save(STATE, path, _use_new_zipfile_serialization=False)
    assert torch.equal(read_weights(path)["fc.bias"], STATE["fc.bias"])


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("zip", r"needs pickled code \(\w+\.system\), which is never run"),
        ("old", r"needs pickled code \(\w+\.system\), which is never run"),
        ("within", r"needs pickled code \(\w+\.system\), which is never run"),
        ("pickle 2", r"needs pickled code \(\w+\.system\), which is never run"),
        ("pickle 4", r"is damaged or no file of weights: Unsupported operand"),
    ],
)
def test_pickled_code_is_refused_in_one_line_and_never_run(
    tmp_path: Path, form: str, told: str
) -> None:
    made = tmp_path / "made-by-the-pickle"
    path = tmp_path / "evil.pth"
    if form.startswith("pickle"):
        path.write_bytes(pickle.dumps(Evil(made), protocol=int(form[-1])))
    else:
        held = {"state_dict": STATE, "hyper": Evil(made)} if form == "within" else Evil(made)
        torch.save(held, path, _use_new_zipfile_serialization=form != "old")
    with pytest.raises(WeightsError, match=told) as caught:
        read_weights(path)
    assert "\n" not in str(caught.value)
    assert "weights_only" not in str(caught.value)
    assert not made.exists()
    if form.startswith("pickle"):
        pickle.loads(path.read_bytes())
    else:
        torch.load(path, weights_only=False)
    assert made.exists(), "the pickle is harmless, so the test shows nothing"


def test_absent_and_strange_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"none\.pth: no such file"):
        read_weights(tmp_path / "none.pth")
    (tmp_path / "folder.pth").mkdir()
    with pytest.raises(WeightsError, match="no such file"):
        read_weights(tmp_path / "folder.pth")
    with pytest.raises(WeightsError, match=r"weights end in .*not in '\.h5'"):
        read_weights(tmp_path / "keras.h5")
    for suffix in (".safetensors", ".pth"):
        (tmp_path / f"empty{suffix}").touch()
        with pytest.raises(WeightsError, match="damaged or no file of weights"):
            read_weights(tmp_path / f"empty{suffix}")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, suffix: str, share: float) -> None:
    path = tmp_path / f"weights{suffix}"
    save_file(STATE, path) if suffix == ".safetensors" else torch.save(STATE, path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(WeightsError, match="damaged or no file of weights"):
        read_weights(path)


@pytest.mark.parametrize("length", [2**63 - 1, 2**40, 100_000_001, 1000])
def test_a_safetensors_header_that_promises_too_much_is_refused(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / "huge.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b'{"a":1}')
    with pytest.raises(WeightsError, match="damaged or no file of weights"):
        read_weights(path)


def test_a_zip_bomb_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    plain, bomb = tmp_path / "plain.pth", tmp_path / "bomb.pth"
    torch.save({"zeros": torch.zeros(2_000_000)}, plain)
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    assert bomb.stat().st_size < 100_000
    with pytest.raises(WeightsError, match=r"would unpack [\d,]+ bytes to 8,[\d,]+:"):
        read_weights(bomb)


def test_something_else_than_a_state_dict_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.pth"
    torch.save([torch.ones(2)], path)
    with pytest.raises(WeightsError, match="holds a list, not a state dict"):
        read_weights(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from([".safetensors", ".pth", ".old.pth"]),
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=8
    ),
)
def test_flipped_bits_never_raise_anything_else(
    tmp_path: Path, form: str, flips: list[tuple[float, int]]
) -> None:
    path = tmp_path / f"flipped{form}"
    if form == ".safetensors":
        save_file(STATE, path)
    else:
        torch.save(STATE, path, _use_new_zipfile_serialization=form == ".pth")
    data = bytearray(path.read_bytes())
    for place, bits in flips:
        data[int(place * len(data))] ^= bits
    path.write_bytes(data)
    with suppress(WeightsError):
        state_dict_of(read_weights(path), "here")


@pytest.mark.parametrize("name", ["state_dict", "model", "model_state_dict", "net", "model_ema"])
def test_the_usual_wrappers_are_taken_off(name: str) -> None:
    held = {name: STATE, "epoch": 3, "optimizer": {"lr": 0.1}}
    assert state_dict_of(held, "here") == STATE


def test_several_sets_of_weights_must_be_chosen_from() -> None:
    other = {key: value + 1 for key, value in STATE.items()}
    held = {"state_dict": STATE, "state_dict_ema": other, "epoch": 3}
    with pytest.raises(WeightsError, match="&key=state_dict or &key=state_dict_ema"):
        state_dict_of(held, "here")
    assert state_dict_of(held, "here", "state_dict_ema") == other
    with pytest.raises(UnknownNameError, match="did you mean state_dict_ema"):
        state_dict_of(held, "here", "state_dict_emma")
    with pytest.raises(WeightsError, match="entry 'epoch' is a int"):
        state_dict_of(held, "here", "epoch")


def test_what_is_no_tensor_is_named() -> None:
    with pytest.raises(WeightsError, match="'epoch' is a int"):
        state_dict_of({**STATE, "epoch": 3}, "here")
    with pytest.raises(WeightsError, match="holds no weights"):
        state_dict_of({}, "here")


def net(outputs: int = 4) -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 2, 1), torch.nn.BatchNorm2d(2), torch.nn.Linear(2, outputs)
    )


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["module.", "_orig_mod.", "model."]), max_size=3, unique=True))
def test_prefixes_of_wrappers_are_taken_off(prefixes: list[str]) -> None:
    source, target = net(), net()
    state = {"".join(prefixes) + key: value for key, value in source.state_dict().items()}
    load_strictly(target, state, "here")
    assert all(torch.equal(target.state_dict()[k], v) for k, v in source.state_dict().items())


def test_counters_of_batches_may_be_missing() -> None:
    state = {k: v for k, v in net().state_dict().items() if "num_batches" not in k}
    load_strictly(net(), state, "here")


def test_half_precision_is_widened() -> None:
    source, target = net().half(), net()
    load_strictly(target, source.state_dict(), "here")
    assert target[2].weight.dtype == torch.float32
    assert torch.equal(target[2].weight, source[2].weight.float())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"0.weight": None}, r"here: '0\.weight' is missing \(1 of 9 keys differ\)"),
        (
            {"0.weight": torch.zeros(2, 3, 3, 3), "0.bias": torch.zeros(3)},
            r"here: '0\.weight' has shape 2×3×3×3, not 2×3×1×1 \(2 of 9 keys differ\)",
        ),
        ({"extra": torch.zeros(1)}, r"here: 'extra' is unexpected \(1 of 9 keys differ\)"),
        ({"0.bias": torch.zeros(2, dtype=torch.int8)}, r"'0\.bias' holds whole numbers, not float"),
        ({"0.bias": torch.zeros(2, dtype=torch.complex64)}, r"holds complex numbers"),
        ({"0.bias": torch.zeros(2).to_sparse()}, r"holds values in a special layout"),
        ({"0.bias": torch.zeros(2, device="meta")}, r"holds values in a special layout"),
        ({"0.bias": torch.tensor([1.0, float("nan")])}, r"'0\.bias' holds NaN or infinite"),
        ({"1.running_var": torch.full((2,), float("inf"))}, r"'1\.running_var' holds NaN"),
        ({"a\nb" * 99: torch.zeros(1)}, r"'a\\nba\\nb.*… is unexpected"),
    ],
)
def test_what_does_not_fit_is_named_with_the_count(
    change: dict[str, torch.Tensor | None], told: str
) -> None:
    state = {k: v for k, v in {**net().state_dict(), **change}.items() if v is not None}
    with pytest.raises(WeightsError, match=told) as caught:
        load_strictly(net(), state, "here")
    assert "\n" not in str(caught.value)


def test_a_view_that_claims_to_be_huge_is_not_unfolded() -> None:
    state = {**net().state_dict(), "2.weight": torch.zeros(1, 1).expand(10**9, 2 * 10**6)}
    with pytest.raises(WeightsError, match="1000000000×2000000, not 4×2"):
        load_strictly(net(), state, "here")


def test_another_number_of_outputs_is_told_as_such() -> None:
    space = load_label_space("imagenet-a")
    with pytest.raises(
        LabelSpaceError,
        match=r"here: 7 outputs, but labels=imagenet-a has 200 classes: '2\.weight' has shape 7×2, "
        r"not 200×2 \(2 of 9 keys differ\)",
    ):
        load_strictly(net(200), net(7).state_dict(), "here", space)


def test_nothing_is_loaded_where_something_does_not_fit() -> None:
    target = net()
    before = {k: v.clone() for k, v in target.state_dict().items()}
    with pytest.raises(WeightsError):
        load_strictly(target, {**net().state_dict(), "extra": torch.zeros(1)}, "here")
    assert all(torch.equal(target.state_dict()[k], v) for k, v in before.items())
